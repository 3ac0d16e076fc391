//! Answers each line with the same line: what a round trip over pipes costs at least.

use std::io::{self, BufRead, Write};

fn main() -> io::Result<()> {
    let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
    let mut line = Vec::new();
    while input.read_until(b'\n', &mut line)? > 0 {
        output.write_all(&line)?;
        output.flush()?;
        line.clear();
    }
    Ok(())
}
