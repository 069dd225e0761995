//! Changes by request to an execution that waits: it is sent now, or cancelled (contract §5.4).

use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::execution::ExecutionStatus;

/// `error_message` of a cancelled execution.
pub const CANCELLED: &str = "cancelled";

/// Checks that an execution in `status` may be sent now. `is_waiting` is true until it is due: a retry that is due already
/// is sent now anyway, and accepted, so that the answer does not depend on the moment.
/// Errors: `execution_in_flight` during an attempt, `invalid_state` if it has ended or waits for nothing but its
/// turn.
pub fn may_retry(status: ExecutionStatus, is_waiting: bool) -> Result<(), Refusal> {
    match status {
        ExecutionStatus::Retrying => Ok(()),
        ExecutionStatus::Pending if is_waiting => Ok(()),
        ExecutionStatus::Pending => Err(Refusal::new(
            ErrorCode::InvalidState,
            "The execution is due already: it begins as soon as a delivery thread or a worker takes it",
        )),
        ExecutionStatus::Delivering => {
            Err(in_flight("An attempt of the execution is running: wait for its end before you retry it"))
        }
        ExecutionStatus::Success | ExecutionStatus::Failed => Err(Refusal::new(
            ErrorCode::InvalidState,
            "The execution has ended and has no attempt left to send now: replay it to run it again",
        )),
    }
}

/// Checks that an execution in `status` may be cancelled.
/// Errors: `execution_in_flight` during an attempt or a claim, `invalid_state` if it has ended.
pub fn may_cancel(status: ExecutionStatus) -> Result<(), Refusal> {
    match status {
        ExecutionStatus::Pending | ExecutionStatus::Retrying => Ok(()),
        ExecutionStatus::Delivering => Err(in_flight(
            "An attempt of the execution is running, or a worker has claimed it: only a waiting one can be cancelled",
        )),
        ExecutionStatus::Success | ExecutionStatus::Failed => {
            Err(Refusal::new(ErrorCode::InvalidState, "The execution has ended: there is nothing to cancel"))
        }
    }
}

fn in_flight(message: &'static str) -> Refusal {
    Refusal::new(ErrorCode::ExecutionInFlight, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_waiting_execution_may_be_sent_now_or_cancelled() {
        use ErrorCode::{ExecutionInFlight, InvalidState};
        for (status, retry_waiting, retry_due, cancel) in [
            (ExecutionStatus::Pending, Ok(()), Err(InvalidState), Ok(())),
            (ExecutionStatus::Retrying, Ok(()), Ok(()), Ok(())),
            (
                ExecutionStatus::Delivering,
                Err(ExecutionInFlight),
                Err(ExecutionInFlight),
                Err(ExecutionInFlight),
            ),
            (ExecutionStatus::Success, Err(InvalidState), Err(InvalidState), Err(InvalidState)),
            (ExecutionStatus::Failed, Err(InvalidState), Err(InvalidState), Err(InvalidState)),
        ] {
            let code = |checked: Result<(), Refusal>| checked.map_err(|refusal| refusal.code);
            assert_eq!(code(may_retry(status, true)), retry_waiting, "{status:?}");
            assert_eq!(code(may_retry(status, false)), retry_due, "{status:?}");
            assert_eq!(code(may_cancel(status)), cancel, "{status:?}");
        }
    }
}
