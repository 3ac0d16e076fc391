//! The fake model as a process: says its base URL, and answers until its standard input is closed.
//!
//! `waystone-model [--chunks N] [--chunk-text TEXT] [--pause-us N]`: N chunks of TEXT with N microseconds between them; without a
//! TEXT the words of the last user message, all of them or N.

use std::error::Error;
use std::io::{self, Write};
use std::time::Duration;

use waystone_testkit::model::{FakeModel, Reply};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let fake = FakeModel::start_forgetful(reply(std::env::args().skip(1))?).await;
    let mut stdout = io::stdout();
    writeln!(stdout, "{}", fake.base_url())?;
    stdout.flush()?;
    tokio::task::spawn_blocking(|| io::copy(&mut io::stdin().lock(), &mut io::sink())).await??;
    Ok(())
}

fn reply(mut args: impl Iterator<Item = String>) -> Result<Reply, Box<dyn Error>> {
    let (mut chunks, mut text, mut pause) = (None, None, Duration::ZERO);
    while let Some(name) = args.next() {
        let value = args.next().ok_or_else(|| format!("{name} has no value"))?;
        match name.as_str() {
            "--chunks" => chunks = Some(value.parse()?),
            "--chunk-text" => text = Some(value),
            "--pause-us" => pause = Duration::from_micros(value.parse()?),
            _ => return Err(format!("unknown argument {name}").into()),
        }
    }
    let reply = match (text, chunks) {
        (Some(text), chunks) => Reply::chunks(vec![text; chunks.unwrap_or(1)]),
        (None, Some(chunks)) => Reply::echo_chunks(chunks),
        (None, None) => Reply::echo(),
    };
    Ok(reply.pause(pause))
}
