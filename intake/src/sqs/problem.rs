//! Turns the error of a request to SQS into a text that says what to do about it.

use aws_sdk_sqs::error::{ProvideErrorMetadata, SdkError};

/// The advice in errors about access keys.
pub(super) const KEYS: &str = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment, and AWS_SESSION_TOKEN with temporary keys; or \
     run where a role gives keys (ECS, EKS, EC2)";

/// The IAM permissions that a source needs.
const PERMISSIONS: &str = "sqs:GetQueueAttributes, sqs:ReceiveMessage, sqs:DeleteMessage, sqs:ChangeMessageVisibility, and \
                           sqs:SendMessage for the queue of refused messages";

/// Why a request to the server failed.
#[derive(Debug)]
pub(super) struct Problem {
    pub(super) text: String,
    /// Whether a retry cannot succeed before somebody has changed something and restarted the program.
    pub(super) is_final: bool,
}

impl Problem {
    pub(super) fn of<E, R>(error: &SdkError<E, R>, are_keys_renewed: bool) -> Problem
    where
        E: ProvideErrorMetadata + std::error::Error + 'static,
        R: std::fmt::Debug + 'static,
    {
        let code = error.as_service_error().and_then(|error| error.meta().code()).unwrap_or_default();
        Problem { text: text(error), is_final: is_final(code, are_keys_renewed) }
    }
}

/// Whether an error code means that retries are useless: keys in the environment are read only once, at the start, and
/// a deleted queue does not come back. Keys of a role that have expired, because the service that renews them was away,
/// are followed by new ones.
fn is_final(code: &str, are_keys_renewed: bool) -> bool {
    match code.rsplit('.').next().unwrap_or(code) {
        "ExpiredToken" | "ExpiredTokenException" => !are_keys_renewed,
        code => ["InvalidClientTokenId", "NonExistentQueue", "QueueDoesNotExist"].contains(&code),
    }
}

/// Describes an error in one line. Of an error that the server returned, only the code is shown: the message about a
/// refused signature may hold the session token.
pub(crate) fn text<E, R>(error: &SdkError<E, R>) -> String
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
    R: std::fmt::Debug + 'static,
{
    if let Some(error) = error.as_service_error() {
        return of_code(error.meta().code().unwrap_or("an error without a code"));
    }
    with_causes(error)
}

/// An error and its causes in one line.
pub(super) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

fn of_code(code: &str) -> String {
    let advice = match code.rsplit('.').next().unwrap_or(code) {
        "NonExistentQueue" | "QueueDoesNotExist" => "there is no such queue: make it first, or correct the URL",
        "InvalidClientTokenId" | "UnrecognizedClientException" | "SignatureDoesNotMatch" | "InvalidSecurity" => {
            return format!("the keys were refused ({code}): {KEYS}; the region must be the queue's (?region=NAME)");
        }
        "ExpiredToken" | "ExpiredTokenException" | "RequestExpired" => {
            "the keys have expired: a role's are renewed, others need a new start; check the clock of this machine"
        }
        "AccessDenied" | "AccessDeniedException" => {
            return format!("these keys may not do this ({code}); needed are {PERMISSIONS}");
        }
        "RequestThrottled" | "ThrottlingException" => "too many requests",
        _ => return format!("the server answered {code}"),
    };
    format!("{advice} ({code})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_become_advice() {
        assert!(of_code("AWS.SimpleQueueService.NonExistentQueue").contains("make it first"));
        assert!(of_code("SignatureDoesNotMatch").contains("AWS_SECRET_ACCESS_KEY"));
        assert!(of_code("AccessDenied").contains("sqs:ReceiveMessage"));
        assert_eq!(of_code("Teapot"), "the server answered Teapot");
        assert!(!is_final("RequestThrottled", false) && !is_final("", false));
    }

    #[test]
    fn expired_keys_are_final_unless_renewed() {
        assert!(is_final("ExpiredToken", false) && is_final("ExpiredTokenException", false));
        assert!(!is_final("ExpiredToken", true) && !is_final("ExpiredTokenException", true));
        assert!(is_final("AWS.SimpleQueueService.NonExistentQueue", true) && is_final("InvalidClientTokenId", true));
    }
}
