//! Contexts that can be made again from a few numbers, so that a test need not remember what it sent.

use serde_json::{Value, json};

/// Numbers that look random and are the same for the same seed.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.number() % bound
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at as u64 + 1) as usize);
        }
    }

    /// Text that hardly compresses.
    pub fn text(&mut self, length: usize) -> String {
        const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 .";
        (0..length.div_ceil(10))
            .flat_map(|_| {
                let bits = self.number();
                (0..10).map(move |at| LETTERS[(bits >> (6 * at) & 63) as usize] as char)
            })
            .take(length)
            .collect()
    }
}

/// The context that writer `writer` saves as its `n`-th: ten bytes to five megabytes, small ones more often.
pub fn numbered(seed: u64, writer: u64, n: u64) -> Value {
    const BLOCK: usize = 100_000;
    let mut random = Random::new(seed ^ (writer << 48) ^ n.wrapping_mul(0x1234_5677));
    let magnitude = random.below(1000) as f64 / 1000.0;
    let length = (10.0 * 500_000f64.powf(magnitude)) as usize;
    let block = random.text(length.min(BLOCK));
    let text: String = block.chars().cycle().take(length).collect();
    json!({ "writer": writer, "n": n, "text": text })
}
