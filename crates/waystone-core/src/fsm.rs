//! The states of a conversation's turn, and which follows which. Pure: the engine asks here before every step, and the store takes a
//! step only from the state that was asked about.

use crate::api::ContextState::{self, *};

/// What happens to a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnEvent {
    /// Someone said something.
    UserMessage,
    /// The model is about to be called.
    Called,
    /// The first part of an answer is there.
    FirstChunk,
    /// The answer has ended, or came as a whole.
    Answered,
    /// The answer asks for no tool.
    NoCalls,
    /// The answer asks for tools, of which one must be approved first.
    ApprovalWanted,
    /// The answer asks for tools that may all be run.
    CallsAllowed,
    /// All calls are decided, and one may be run.
    Approved,
    /// All calls are denied, which the model is told.
    Denied,
    /// All tools have returned.
    ResultsIn,
    /// The model did not answer, and may if it is asked again.
    Failed,
    /// It is time to ask again.
    TryAgain,
    /// The turn cannot go on.
    GaveUp,
    /// Someone wants it tried again.
    Retry,
    /// Someone wants it to end.
    Cancel,
    /// Who ran the turn is gone, and another goes on with it.
    Adopted,
}

impl TurnEvent {
    pub const ALL: [Self; 16] = [
        Self::UserMessage,
        Self::Called,
        Self::FirstChunk,
        Self::Answered,
        Self::NoCalls,
        Self::ApprovalWanted,
        Self::CallsAllowed,
        Self::Approved,
        Self::Denied,
        Self::ResultsIn,
        Self::Failed,
        Self::TryAgain,
        Self::GaveUp,
        Self::Retry,
        Self::Cancel,
        Self::Adopted,
    ];
}

/// The state after `event`; `None` where it cannot happen.
pub fn next(state: ContextState, event: TurnEvent) -> Option<ContextState> {
    use TurnEvent::*;
    Some(match (state, event) {
        (Idle | PermanentFailure, UserMessage) => ProcessingUserMessage,
        (ProcessingUserMessage, Called) => AwaitingLLMResponse,
        (AwaitingLLMResponse, FirstChunk) => StreamingLLMResponse,
        (AwaitingLLMResponse | StreamingLLMResponse, Answered) => ProcessingLLMResponse,
        (ProcessingLLMResponse, NoCalls) => Idle,
        (ProcessingLLMResponse, ApprovalWanted) => AwaitingToolApproval,
        (ProcessingLLMResponse, CallsAllowed) => ExecutingTools,
        // None of them can be run, which the model is told.
        (ProcessingLLMResponse, Denied) => AwaitingLLMResponse,
        // One was started by a process that is gone.
        (ExecutingTools, ApprovalWanted) => AwaitingToolApproval,
        (AwaitingToolApproval, Approved) => ExecutingTools,
        (AwaitingToolApproval, Denied) => AwaitingLLMResponse,
        (ExecutingTools, ResultsIn) => AwaitingLLMResponse,
        (AwaitingLLMResponse | StreamingLLMResponse, Failed) => TransientFailure,
        (TransientFailure, TryAgain | Retry) => AwaitingLLMResponse,
        (PermanentFailure, Retry) => AwaitingLLMResponse,
        // What was streamed is streamed anew; tools that were started are looked at one by one.
        (ProcessingUserMessage | AwaitingLLMResponse | StreamingLLMResponse | TransientFailure, Adopted) => {
            AwaitingLLMResponse
        }
        (ProcessingLLMResponse | ExecutingTools, Adopted) => state,
        (state, GaveUp) if state.is_running() => PermanentFailure,
        (state, Cancel) if state.is_running() => Idle,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every transition there is. What is not in here is refused.
    const TABLE: &str = "
        Idle                  UserMessage     ProcessingUserMessage
        PermanentFailure      UserMessage     ProcessingUserMessage
        ProcessingUserMessage Called          AwaitingLLMResponse
        AwaitingLLMResponse   FirstChunk      StreamingLLMResponse
        AwaitingLLMResponse   Answered        ProcessingLLMResponse
        StreamingLLMResponse  Answered        ProcessingLLMResponse
        ProcessingLLMResponse NoCalls         Idle
        ProcessingLLMResponse ApprovalWanted  AwaitingToolApproval
        ProcessingLLMResponse CallsAllowed    ExecutingTools
        ProcessingLLMResponse Denied          AwaitingLLMResponse
        ExecutingTools        ApprovalWanted  AwaitingToolApproval
        AwaitingToolApproval  Approved        ExecutingTools
        AwaitingToolApproval  Denied          AwaitingLLMResponse
        ExecutingTools        ResultsIn       AwaitingLLMResponse
        AwaitingLLMResponse   Failed          TransientFailure
        StreamingLLMResponse  Failed          TransientFailure
        TransientFailure      TryAgain        AwaitingLLMResponse
        TransientFailure      Retry           AwaitingLLMResponse
        PermanentFailure      Retry           AwaitingLLMResponse
        ProcessingUserMessage Adopted         AwaitingLLMResponse
        AwaitingLLMResponse   Adopted         AwaitingLLMResponse
        StreamingLLMResponse  Adopted         AwaitingLLMResponse
        TransientFailure      Adopted         AwaitingLLMResponse
        ProcessingLLMResponse Adopted         ProcessingLLMResponse
        ExecutingTools        Adopted         ExecutingTools
        ProcessingUserMessage GaveUp          PermanentFailure
        AwaitingLLMResponse   GaveUp          PermanentFailure
        StreamingLLMResponse  GaveUp          PermanentFailure
        ProcessingLLMResponse GaveUp          PermanentFailure
        AwaitingToolApproval  GaveUp          PermanentFailure
        ExecutingTools        GaveUp          PermanentFailure
        TransientFailure      GaveUp          PermanentFailure
        ProcessingUserMessage Cancel          Idle
        AwaitingLLMResponse   Cancel          Idle
        StreamingLLMResponse  Cancel          Idle
        ProcessingLLMResponse Cancel          Idle
        AwaitingToolApproval  Cancel          Idle
        ExecutingTools        Cancel          Idle
        TransientFailure      Cancel          Idle";

    #[test]
    fn every_pair_of_state_and_event_is_in_the_table_or_refused() {
        let rows: Vec<Vec<&str>> = TABLE.trim().lines().map(|line| line.split_whitespace().collect()).collect();
        let mut found = 0;
        for state in ContextState::ALL {
            for event in TurnEvent::ALL {
                let (from, on) = (format!("{state:?}"), format!("{event:?}"));
                let row = rows.iter().find(|row| row[..2] == [&from, &on]);
                let after = next(state, event).map(|state| format!("{state:?}"));
                assert_eq!(after.as_deref(), row.map(|row| row[2]), "{from} {on}");
                found += usize::from(row.is_some());
            }
        }
        assert_eq!(found, rows.len());
    }

    #[test]
    fn a_turn_that_runs_can_always_end() {
        for state in ContextState::ALL {
            assert_eq!(next(state, TurnEvent::Cancel).is_some(), state.is_running(), "{state:?}");
            assert_eq!(next(state, TurnEvent::GaveUp).is_some(), state.is_running(), "{state:?}");
            assert_eq!(next(state, TurnEvent::UserMessage).is_some(), !state.is_running(), "{state:?}");
        }
    }
}
