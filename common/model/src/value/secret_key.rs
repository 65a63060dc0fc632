//! The encryption key of secrets. Redis never has it.

use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use sha2::{Digest, Sha256};

const KEY_BYTES: usize = 32;
const ALGORITHM: &str = "chacha20poly1305";

/// `Debug` shows its id only.
#[derive(Clone)]
pub struct SecretKey {
    key: Arc<LessSafeKey>,
    id: String,
}

/// No variant contains a part of the secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecryptError {
    #[error("it was encrypted with the key {of_text}, and the key of this process is {own}")]
    OtherKey {
        /// Key id of the text.
        of_text: String,
        own: String,
    },
    /// This key did not encrypt it under this name and version.
    #[error("it was changed, or belongs to another name or version")]
    Changed,
    #[error("it is in a form that this program does not know")]
    UnknownForm,
}

impl SecretKey {
    /// The error contains no part of the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let digits = text.trim().as_bytes();
        let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
        let bytes: Option<Vec<u8>> =
            digits.chunks(2).map(|pair| Some(digit(pair[0])? << 4 | digit(*pair.get(1)?)?)).collect();
        let bytes = bytes
            .filter(|bytes| bytes.len() == KEY_BYTES)
            .ok_or("it has no key of 64 hexadecimal digits: `kubeleet secret key > FILE` writes a new one")?;
        Ok(Self::from_bytes(&bytes))
    }

    /// Fails without random bytes of the system.
    pub fn generate() -> Result<String, String> {
        let mut bytes = [0; KEY_BYTES];
        fill_randomly(&mut bytes)?;
        Ok(hex(&bytes))
    }

    fn from_bytes(bytes: &[u8]) -> Self {
        let digest =
            Sha256::new().chain_update(b"id of a kubeleet secret key").chain_update(bytes).finalize();
        let key = UnboundKey::new(&CHACHA20_POLY1305, bytes).expect("the length was checked");
        Self { key: Arc::new(LessSafeKey::new(key)), id: hex(&digest[..4]) }
    }

    /// Eight digits that do not reveal the key.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// `context` is a name and a version. Fails without random bytes of the system.
    pub fn encrypt(&self, context: &str, plain: &[u8]) -> Result<String, String> {
        let mut nonce = [0; NONCE_LEN];
        fill_randomly(&mut nonce)?;
        let mut text = plain.to_vec();
        let unique = Nonce::assume_unique_for_key(nonce);
        let sealed = self.key.seal_in_place_append_tag(unique, Aad::from(context.as_bytes()), &mut text);
        sealed.map_err(|_| "it is too long to be encrypted".to_owned())?;
        let sealed = STANDARD.encode([&nonce[..], &text].concat());
        Ok(format!("{ALGORITHM}:{}:{sealed}", self.id))
    }

    pub fn id_of_text(text: &str) -> Option<&str> {
        let mut parts = text.splitn(3, ':');
        let (algorithm, key) = (parts.next()?, parts.next()?);
        (algorithm == ALGORITHM && parts.next().is_some()).then_some(key)
    }

    pub fn decrypt(&self, context: &str, text: &str) -> Result<Vec<u8>, DecryptError> {
        let mut parts = text.splitn(3, ':');
        let (Some(ALGORITHM), Some(key), Some(sealed)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(DecryptError::UnknownForm);
        };
        if key != self.id {
            // The stored text can be anything, and is shown.
            let of_text: String = key.chars().filter(char::is_ascii_hexdigit).take(8).collect();
            return Err(DecryptError::OtherKey { of_text, own: self.id.clone() });
        }
        let bytes = STANDARD.decode(sealed).map_err(|_| DecryptError::Changed)?;
        let (nonce, sealed) = bytes.split_at_checked(NONCE_LEN).ok_or(DecryptError::Changed)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| DecryptError::Changed)?;
        let mut text = sealed.to_vec();
        let plain = self.key.open_in_place(nonce, Aad::from(context.as_bytes()), &mut text);
        plain.map(|plain| plain.to_vec()).map_err(|_| DecryptError::Changed)
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretKey({})", self.id)
    }
}

fn fill_randomly(bytes: &mut [u8]) -> Result<(), String> {
    SystemRandom::new().fill(bytes).map_err(|_| "the system gives no random bytes".to_owned())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> SecretKey {
        SecretKey::parse(&SecretKey::generate().unwrap()).unwrap()
    }

    #[test]
    fn only_the_same_key_and_context_decrypt() {
        let (key, other) = (key(), key());
        let text = key.encrypt("secret db v1", b"hunter2").unwrap();
        assert_eq!(key.decrypt("secret db v1", &text).unwrap(), b"hunter2");
        assert_eq!(key.decrypt("secret db v2", &text), Err(DecryptError::Changed));
        assert!(matches!(other.decrypt("secret db v1", &text), Err(DecryptError::OtherKey { .. })));
        assert_ne!(key.encrypt("secret db v1", b"hunter2").unwrap(), text, "never the same text twice");
        assert_eq!(SecretKey::id_of_text(&text), Some(key.id()));
        assert_eq!(SecretKey::id_of_text("hunter2:x"), None);
    }

    #[test]
    fn a_changed_text_is_refused() {
        let key = key();
        let text = key.encrypt("a", b"hunter2").unwrap();
        let sealed_at = text.rfind(':').unwrap() + 1;
        for at in sealed_at..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert_eq!(key.decrypt("a", &changed), Err(DecryptError::Changed), "{changed}");
        }
        for unknown in ["", "hunter2", "aes:1:2", "chacha20poly1305:x"] {
            assert_eq!(key.decrypt("a", unknown), Err(DecryptError::UnknownForm), "{unknown}");
        }
        let empty = format!("chacha20poly1305:{}:", key.id());
        assert_eq!(key.decrypt("a", &empty), Err(DecryptError::Changed));
    }

    #[test]
    fn an_invalid_key_is_not_shown() {
        for bad in ["", "hunter2", &"x".repeat(64), &"a".repeat(63), &"a".repeat(66)] {
            let error = SecretKey::parse(bad).unwrap_err();
            assert!(bad.is_empty() || !error.contains(bad), "{error}");
        }
        let text = SecretKey::generate().unwrap();
        let shown = format!("{:?}", SecretKey::parse(&format!("{text}\n")).unwrap());
        assert!(!shown.contains(&text) && shown.len() == "SecretKey(01234567)".len(), "{shown}");
    }
}
