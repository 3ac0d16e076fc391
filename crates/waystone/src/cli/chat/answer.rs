//! A turn, followed to its end by who waits for it.

use std::io::Write;
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::sync::mpsc;
use waystone_core::api::{ContextState, TurnError};
use waystone_core::id::SessionId;
use waystone_core::store::Scope;
use waystone_core::{Engine, Error, Reader};

use super::screen::{Event, Screen};
use crate::cli::failure::Failure;

/// How often is looked whether the process is gone that runs the turn.
const ADOPTED_AFTER: Duration = Duration::from_secs(1);

/// How a turn ended.
#[derive(Debug)]
pub(super) enum Ended {
    Answered,
    /// By someone, before the answer was whole.
    Cancelled,
    Failed(TurnError),
    /// Not at all: calls of tools wait for someone to decide.
    Waits,
}

/// Ctrl-C, which from now on ends an answer and not the process.
pub(super) struct Interrupts(mpsc::Receiver<()>);

impl Interrupts {
    pub(super) fn listen() -> Self {
        let (told, interrupts) = mpsc::channel(1);
        let mut next = Box::pin(tokio::signal::ctrl_c());
        // It is heard from now on, not only when the task begins: an editor that was opened before that would, when it ends, put back that
        // Ctrl-C ends the process.
        let mut is_heard = next.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
        tokio::spawn(async move {
            while is_heard || next.await.is_ok() {
                is_heard = false;
                // Who was told and did not listen yet need not be told twice.
                let _ = told.try_send(());
                next = Box::pin(tokio::signal::ctrl_c());
            }
        });
        Self(interrupts)
    }

    pub(super) async fn next(&mut self) {
        if self.0.recv().await.is_none() {
            std::future::pending().await
        }
    }

    /// What came too late to end anything is over.
    pub(super) fn forget(&mut self) {
        while self.0.try_recv().is_ok() {}
    }
}

/// Shows a turn until it ends, or someone has to decide. Who interrupts it ends it; one whose process is gone is gone on with here.
pub(super) async fn follow<W: Write>(
    (engine, scope, context): (&Engine, &Scope, &SessionId),
    reader: &mut Reader,
    screen: &mut Screen<W>,
    interrupts: &mut Interrupts,
) -> anyhow::Result<Ended> {
    let (mut last, mut is_cancelled) = (String::new(), false);
    let mut looks = tokio::time::interval(ADOPTED_AFTER);
    loop {
        let frames = tokio::select! {
            frames = reader.next() => frames,
            () = interrupts.next() => {
                is_cancelled |= cancel(engine, scope, context, interrupts).await?;
                continue;
            }
            _ = looks.tick() => {
                engine.adopt_turn(scope, context).await?;
                // Of a conversation that is gone nothing is told.
                engine.find_turn(scope, context).await?;
                continue;
            }
        };
        let Some(frames) = frames else {
            *reader = engine.follow_context(scope, context, Some(&last)).await?;
            continue;
        };
        for frame in frames {
            last = frame.id();
            let Some(event) = Event::of(&frame)? else { continue };
            let may_be_over = event.state().is_some_and(|state| !state.is_driven());
            screen.show(event)?;
            if may_be_over && let Some(ended) = find_end(engine, scope, context).await? {
                interrupts.forget();
                screen.end_line()?;
                let is_cancelled = is_cancelled || screen.completed.as_ref().is_some_and(|(_, cancelled)| *cancelled);
                return Ok(if is_cancelled { Ended::Cancelled } else { ended });
            }
        }
    }
}

/// How the turn ended, unless another one began.
async fn find_end(engine: &Engine, scope: &Scope, context: &SessionId) -> anyhow::Result<Option<Ended>> {
    let turn = engine.find_turn(scope, context).await?;
    Ok(match turn.error {
        _ if turn.current_state == ContextState::AwaitingToolApproval => Some(Ended::Waits),
        _ if turn.current_state.is_running() => None,
        Some(error) => Some(Ended::Failed(error)),
        None => Some(Ended::Answered),
    })
}

/// Ends a turn. Whether it did: it may have ended by itself.
pub(super) async fn cancel(
    engine: &Engine,
    scope: &Scope,
    context: &SessionId,
    interrupts: &mut Interrupts,
) -> anyhow::Result<bool> {
    tokio::select! {
        done = engine.cancel_turn(scope, context, None) => match done {
            Ok(_) => Ok(true),
            Err(Error::InvalidState { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        },
        // What can end an answer cannot be reached, and someone has lost patience.
        () = interrupts.next() => Err(Failure {
            code: "CANCELLED",
            message: "the answer was left before it was ended".to_owned(),
            hint: format!("`waystone chat --context {context}` goes on with it"),
        }
        .into()),
    }
}
