//! What encryption costs: the same calls on a sealed store and on a plain one, by turns.

use serde_json::json;
use waystone_testkit::contexts::Random;
use waystone_testkit::process::{McpProcess, command, run};

use super::client::{Changing, Ground, list_line, load_latest_line, save_line, timed};
use super::report::{Report, Sample, ratio};
use super::{Options, Programs};

const WARM_UP: usize = 20;

#[derive(Default)]
struct Samples {
    save: Sample,
    small_save: Sample,
    load: Sample,
    list: Sample,
}

struct Store {
    process: McpProcess,
    samples: Samples,
}

impl Store {
    fn round(&mut self, lines: &[String; 4]) -> anyhow::Result<()> {
        let [save, small, load, list] = lines;
        let Self { process, samples } = self;
        samples.save.push(timed(process, save)?);
        samples.small_save.push(timed(process, small)?);
        samples.load.push(timed(process, load)?);
        samples.list.push(timed(process, list)?);
        Ok(())
    }
}

pub(super) fn measure(programs: &Programs, options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let ground = Ground::new();
    let key = ground.file("key");
    run(command(&programs.waystone, &ground.file("none")).args(["key", "generate", "--output"]).arg(&key))?;
    let variables =
        [("WAYSTONE_KEY_FILE", key.to_string_lossy().into_owned()), ("WAYSTONE_ENCRYPTION", "1".to_owned())];
    let variables = variables.map(|(name, value)| (name.to_owned(), value)).to_vec();
    let store = |name: &str, variables| -> anyhow::Result<Store> {
        Ok(Store { process: ground.start(&programs.waystone, name, variables)?, samples: Samples::default() })
    };
    let mut stores = [store("plain", Vec::new())?, store("sealed", variables)?];
    let (mut changing, mut order) = (Changing::of_33_kb(), Random::new(3));
    for n in 0..options.rounds + WARM_UP {
        if n == WARM_UP {
            stores.iter_mut().for_each(|store| store.samples = Samples::default());
        }
        let lines = [
            save_line(n, "bench", changing.next()),
            save_line(n, "small", &json!({ "n": n })),
            load_latest_line("bench"),
            list_line("bench"),
        ];
        let mut turns = [0, 1];
        order.shuffle(&mut turns);
        turns.iter().try_for_each(|turn| stores[*turn].round(&lines))?;
    }
    let [Store { samples: plain, .. }, Store { samples: sealed, .. }] = stores;
    let beside = |sealed: &Sample, plain: &Sample| format!("{sealed}; {} plain ({plain})", ratio(sealed, plain));
    report.figure("save 33 KB, one line changed", beside(&sealed.save, &plain.save), "1.3 x");
    report.figure("save 10 bytes", beside(&sealed.small_save, &plain.small_save), "1.3 x");
    report.figure("load the latest 33 KB", beside(&sealed.load, &plain.load), "1.3 x");
    report.note("list 20", beside(&sealed.list, &plain.list));
    Ok(())
}
