//! The operating system's errors in messages for people.

/// `Connection refused`, not `Connection refused (os error 111)`.
pub fn system_error(error: &dyn std::error::Error) -> String {
    without_error_numbers(&error.to_string())
}

pub fn without_error_numbers(text: &str) -> String {
    let mut parts = text.split(" (os error ");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| match part.split_once(')') {
        Some((_number, rest)) => text + rest,
        None => text + part,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_no_number() {
        let error = std::io::Error::from_raw_os_error(2);
        assert_eq!(system_error(&error), "No such file or directory");
        let text = "a: Connection refused (os error 111); b: Broken pipe (os error 32) again";
        assert_eq!(without_error_numbers(text), "a: Connection refused; b: Broken pipe again");
        assert_eq!(without_error_numbers("as it is (really)"), "as it is (really)");
    }
}
