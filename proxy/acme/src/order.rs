//! One order of a certificate: from the account to the chain.

use std::time::Duration;

use daemon::backoff::Backoff;
use daemon::config::AcmeSettings;
use ingress::CACHED_FOR;
use ingress::certificates::parse;
use ingress::certificates::stored;
use instant_acme::{
    Account, AccountCredentials, AuthorizationStatus, ChallengeType, Error, Identifier, NewAccount, NewOrder,
    Order, OrderStatus, Problem, RetryPolicy,
};
use model::network::certificate::{StoredCertificate, open_account, seal_account, wait_after};
use model::value::secret::Secret;
use model::value::secret_key::SecretKey;
use store::{Challenge, Store, StoreError};
use tokio::time::{sleep, timeout};

use super::authority::Authority;

const ORDER_WITHIN: Duration = Duration::from_secs(5 * 60);
const POLL: RetryPolicy = RetryPolicy::new()
    .initial_delay(Duration::from_millis(250))
    .backoff(1.5)
    .timeout(Duration::from_secs(90));
const NONCE_TRIES: u32 = 10;
const UNKNOWN_ACCOUNT: &str = "urn:ietf:params:acme:error:accountDoesNotExist";
const BAD_NONCE: &str = "urn:ietf:params:acme:error:badNonce";
const ERROR_PREFIX: &str = "urn:ietf:params:acme:error:";

/// Displays as a sentence without its full stop.
#[derive(Debug, thiserror::Error)]
pub(super) enum OrderError {
    #[error("{0}")]
    Settings(String),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(
        "the account with {server} cannot be read: {why}; HDEL acme_accounts {server} has a new one made"
    )]
    Account { server: String, why: String },
    #[error("{}", words(.0))]
    Acme(#[from] Error),
    #[error("the authority refuses it: {}", problem_words(.0))]
    Refused(Problem),
    #[error("the authority refuses it and says no reason")]
    RefusedSilently,
    #[error("the authority does not check by HTTP-01, and nothing else is known here")]
    NoChallenge,
    #[error("another proxy has begun an order for it")]
    Superseded,
    #[error("the authority has sent no certificate that can be served: {0}")]
    Certificate(String),
    #[error("it did not end within 5 min")]
    TooLong,
}

impl OrderError {
    fn has_type(&self, slug: &str) -> bool {
        matches!(self, Self::Acme(Error::Api(problem)) if problem.r#type.as_deref() == Some(slug))
    }
}

fn words(error: &Error) -> String {
    match error {
        Error::Api(problem) => format!("the authority's server answers: {}", problem_words(problem)),
        Error::Timeout(_) => "the authority did not decide within 90 s".to_owned(),
        Error::Other(error) => format!("the authority's server cannot be reached: {error}"),
        other => format!("the authority's reply is not valid ACME: {other}"),
    }
}

fn problem_words(problem: &Problem) -> String {
    let detail = problem.detail.as_deref().unwrap_or("no reason").trim_end_matches('.');
    match problem.r#type.as_deref() {
        Some(kind) => format!("{detail} ({})", kind.strip_prefix(ERROR_PREFIX).unwrap_or(kind)),
        None => detail.to_owned(),
    }
}

/// A request with a rejected nonce had no effect.
macro_rules! with_nonces {
    ($request:expr) => {{
        let mut tries = 1;
        loop {
            match $request.map_err(OrderError::from) {
                Err(error) if tries < NONCE_TRIES && error.has_type(BAD_NONCE) => tries += 1,
                other => break other,
            }
        }
    }};
}

#[derive(Clone)]
pub(super) struct Ordering {
    pub(super) store: Store,
    pub(super) settings: AcmeSettings,
    pub(super) key: SecretKey,
}

impl Ordering {
    /// `attempts` counts orders since the last success.
    pub(super) async fn order(&self, host: &str, attempt: &str, attempts: u32) {
        let authority = match Authority::new(&self.settings) {
            Ok(authority) => authority,
            Err(problem) => {
                return self
                    .failed(host, attempt, wait_after(attempts, None), &OrderError::Settings(problem))
                    .await;
            }
        };
        let ordered = timeout(ORDER_WITHIN, self.with_account(&authority, host, attempt)).await;
        match ordered.unwrap_or(Err(OrderError::TooLong)) {
            Ok(certificate) => self.succeeded(&certificate).await,
            Err(OrderError::Superseded) => {
                tracing::info!("another proxy has begun to order the certificate of {host}");
            }
            Err(error) => {
                let wait = wait_after(attempts, authority.asked_wait());
                self.failed(host, attempt, wait, &error).await;
            }
        }
    }

    async fn succeeded(&self, certificate: &StoredCertificate) {
        let host = &certificate.host;
        tracing::info!("the certificate of {host} was ordered from {}", self.settings.directory);
        let mut backoff = Backoff::starting_at(Duration::from_millis(200));
        // Retries forever: authorities limit the number of certificates.
        while let Err(error) = self.store.put_certificate(certificate).await {
            if error.is_broken_key() {
                tracing::error!(
                    "the certificate of {host} cannot be stored: {error}; DEL certificate:{host}"
                );
                return;
            }
            tracing::warn!("the certificate of {host} cannot be stored: {error}; it is tried again");
            sleep(backoff.next()).await;
        }
    }

    async fn failed(&self, host: &str, attempt: &str, wait: Duration, error: &OrderError) {
        let seconds = wait.as_secs();
        tracing::warn!(
            "the certificate of {host} cannot be ordered: {error}; it is tried again in {seconds} s"
        );
        let failure = error.to_string();
        let mut backoff = Backoff::starting_at(Duration::from_millis(200));
        while let Err(error) = self.store.fail_certificate(host, attempt, &failure, wait).await {
            if error.is_broken_key() {
                return;
            }
            tracing::debug!(%error, "the failure of an order cannot be stored; it is tried again");
            sleep(backoff.next()).await;
        }
    }

    async fn with_account(
        &self,
        authority: &Authority,
        host: &str,
        attempt: &str,
    ) -> Result<StoredCertificate, OrderError> {
        let directory = &self.settings.directory;
        if let Some(account) = self.stored_account(authority).await? {
            match self.issue(&account, host, attempt).await {
                Err(error) if error.has_type(UNKNOWN_ACCOUNT) => {
                    tracing::warn!("{directory} does not know the account any more: a new one is made");
                    self.store.forget_acme_account(directory).await?;
                }
                issued => return issued,
            }
        }
        let account = self.new_account(authority).await?;
        self.issue(&account, host, attempt).await
    }

    async fn stored_account(&self, authority: &Authority) -> Result<Option<Account>, OrderError> {
        let directory = &self.settings.directory;
        let Some(sealed) = self.store.acme_account(directory).await? else { return Ok(None) };
        let unreadable = |why: String| OrderError::Account { server: directory.clone(), why };
        let text =
            open_account(directory, &sealed, &self.key).map_err(|error| unreadable(error.to_string()))?;
        let credentials: AccountCredentials =
            serde_json::from_str(text.expose()).map_err(|_| unreadable("it is none".to_owned()))?;
        let builder = Account::builder_with_http(Box::new(authority.clone()));
        Ok(Some(builder.from_credentials(credentials).await?))
    }

    /// The first one stored of two concurrent accounts is used later. A crash before storing leaves an
    /// unused account on the server.
    async fn new_account(&self, authority: &Authority) -> Result<Account, OrderError> {
        let directory = &self.settings.directory;
        let contact = self.settings.email.as_ref().map(|email| format!("mailto:{email}"));
        let contact: Vec<&str> = contact.as_deref().into_iter().collect();
        let new =
            NewAccount { contact: &contact, terms_of_service_agreed: true, only_return_existing: false };
        let create =
            || Account::builder_with_http(Box::new(authority.clone())).create(&new, directory.clone(), None);
        let (account, credentials) = with_nonces!(create().await)?;
        let text = serde_json::to_string(&credentials).map_err(Error::from)?;
        let sealed = seal_account(directory, &text, &self.key).map_err(OrderError::Settings)?;
        self.store.put_acme_account(directory, &sealed).await?;
        tracing::info!("registered an account with {directory}; its terms of service are accepted");
        Ok(account)
    }

    async fn issue(
        &self,
        account: &Account,
        host: &str,
        attempt: &str,
    ) -> Result<StoredCertificate, OrderError> {
        let identifiers = [Identifier::Dns(host.to_owned())];
        let mut order = with_nonces!(account.new_order(&NewOrder::new(&identifiers)).await)?;
        with_nonces!(self.prove(&mut order, host, attempt).await)?;
        match with_nonces!(order.poll_ready(&POLL).await) {
            Ok(OrderStatus::Ready | OrderStatus::Valid) => {}
            Ok(_) => {
                return Err(refusal(&mut order)
                    .await
                    .map_or(OrderError::RefusedSilently, OrderError::Refused));
            }
            Err(OrderError::Acme(Error::Api(problem))) => {
                return Err(OrderError::Refused(refusal(&mut order).await.unwrap_or(problem)));
            }
            Err(error) => return Err(error),
        }
        let key = Secret::new(with_nonces!(order.finalize().await)?);
        let chain = with_nonces!(order.poll_certificate(&POLL).await)?;
        self.sealed(host, chain, &key)
    }

    async fn prove(&self, order: &mut Order, host: &str, attempt: &str) -> Result<(), OrderError> {
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization?;
            match authorization.status {
                AuthorizationStatus::Valid => continue,
                AuthorizationStatus::Pending => {}
                _ => return Err(OrderError::RefusedSilently),
            }
            let mut challenge =
                authorization.challenge(ChallengeType::Http01).ok_or(OrderError::NoChallenge)?;
            let answer = Challenge {
                token: challenge.token.clone(),
                authorization: challenge.key_authorization().as_str().to_owned(),
            };
            if !self.store.put_challenge(host, attempt, &answer).await? {
                return Err(OrderError::Superseded);
            }
            // Other proxies may cache for this long that there is no challenge.
            sleep(CACHED_FOR + CACHED_FOR / 2).await;
            match challenge.set_ready().await.map_err(OrderError::from) {
                Err(error) if error.has_type(BAD_NONCE) || error.has_type(UNKNOWN_ACCOUNT) => {
                    return Err(error);
                }
                Err(OrderError::Acme(Error::Api(problem))) => return Err(OrderError::Refused(problem)),
                other => other?,
            }
        }
        Ok(())
    }

    fn sealed(&self, host: &str, chain: String, key: &Secret) -> Result<StoredCertificate, OrderError> {
        let unusable = |error: String| OrderError::Certificate(error);
        let pem = key.expose().as_bytes();
        let parsed =
            parse("it", chain.as_bytes(), "its key", pem).map_err(|error| unusable(error.to_string()))?;
        let validity = (parsed.subject.validity.not_before, parsed.subject.validity.not_after);
        let directory = &self.settings.directory;
        let stored =
            StoredCertificate::seal(host, directory, chain, key, validity, &self.key).map_err(unusable)?;
        stored::open(&stored, &self.key).map_err(unusable)?;
        Ok(stored)
    }
}

async fn refusal(order: &mut Order) -> Option<Problem> {
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        if with_nonces!(authorization.refresh().await.map(drop)).is_err() {
            continue;
        }
        if let Some(problem) = authorization.challenges.iter().find_map(|challenge| challenge.error.clone()) {
            return Some(problem);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_the_authority_found_in_its_own_words() {
        let problem: Problem = serde_json::from_str(
            r#"{"type":"urn:ietf:params:acme:error:dns","detail":"no address for a.example.","status":400}"#,
        )
        .unwrap();
        let refused = OrderError::Refused(problem.clone()).to_string();
        assert_eq!(refused, "the authority refuses it: no address for a.example (dns)");
        let answered = OrderError::from(Error::Api(problem)).to_string();
        assert_eq!(answered, "the authority's server answers: no address for a.example (dns)");
        let unreachable = OrderError::from(Error::Other("connection refused".into())).to_string();
        assert!(unreachable.contains("cannot be reached: connection refused"), "{unreachable}");
    }
}
