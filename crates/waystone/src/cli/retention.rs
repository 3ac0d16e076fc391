//! `waystone cleanup`

use std::io::Write;

use clap::Args;
use waystone_core::Engine;
use waystone_core::api::{CleanUp, CleanedUp};
use waystone_core::clock::{Since, Timestamp};
use waystone_core::id::SessionId;
use waystone_core::store::Scope;

use super::render::{Out, advance, ago, ask, bar, bytes, count, short, table, time};

#[derive(Debug, Args)]
pub(crate) struct CleanUpArguments {
    /// Checkpoints saved longer ago than this, such as 7d, or before this time
    #[arg(long, value_name = "AGE")]
    older_than: Option<Since>,
    /// Checkpoints beyond the newest N of their session
    #[arg(long, value_name = "N")]
    keep_last: Option<u32>,
    /// Only of this session
    #[arg(long)]
    session: Option<SessionId>,
    /// Only show what would be deleted
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

pub(crate) async fn run(arguments: CleanUpArguments, engine: &Engine, scope: &Scope, out: &Out) -> anyhow::Result<()> {
    let CleanUpArguments { older_than, keep_last, session, dry_run, yes } = arguments;
    let request = CleanUp { older_than, keep_last, session_id: session, dry_run };
    if !dry_run && !yes {
        let would = engine.clean_up(scope, CleanUp { dry_run: true, ..request.clone() }, |_, _| {}).await?;
        if would.cleaned.is_empty() {
            return out.print(&would, |would| show(would, engine.now()));
        }
        writeln!(std::io::stderr(), "{}", show(&would, engine.now()).trim_end())?;
        ask("Delete all of that?", "old data is deleted", "nothing was deleted")?;
    }
    let bar = bar("cleaning up");
    let cleaned = engine.clean_up(scope, request, |done, total| advance(&bar, done, total)).await?;
    bar.finish_and_clear();
    out.print(&cleaned, |cleaned| show(cleaned, engine.now()))
}

fn show(cleaned: &CleanedUp, now: Timestamp) -> String {
    if cleaned.cleaned.is_empty() {
        return "Nothing is to be deleted: what is left is recent, the newest of its session, named, tagged or a branch.\n".to_owned();
    }
    let header = ["SESSION", "NAME", "WHAT", "CHECKPOINTS", "SIZE", "LAST USED"];
    let rows = cleaned.cleaned.iter().map(|of| {
        let what = if of.whole_session { "all of it" } else { "checkpoints" };
        let name = short(of.name.as_deref().unwrap_or_default());
        let (id, size, used) = (of.session_id.to_string(), bytes(of.size_bytes), ago(of.last_accessed_at, now));
        vec![id, name, what.to_owned(), of.checkpoints.to_string(), size, used]
    });
    let done = if cleaned.dry_run { "would be deleted" } else { "deleted" };
    let (sessions, checkpoints) = (count(cleaned.sessions, "session"), count(cleaned.checkpoints, "checkpoint"));
    let (size, until) = (bytes(cleaned.size_bytes), time(cleaned.kept_until));
    let after = match cleaned.dry_run {
        true => String::new(),
        false => format!(
            "\n`waystone session restore` and `waystone checkpoint restore` bring them back, until {until} at least"
        ),
    };
    format!("{}\n{sessions} and {checkpoints} {done} ({size}){after}\n", table(&header, rows).trim_end())
}
