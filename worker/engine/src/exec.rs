//! The result of a command run in a container.

const MAX_OUTPUT: usize = 4096;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExecResult {
    /// 126 and 127 if the command could not start; `None` if it did not end in time.
    pub exit_code: Option<i64>,
    /// At most 4 KiB, of standard output and standard error together.
    pub output: String,
}

#[derive(Debug, Default)]
pub(crate) struct OutputTail(Vec<u8>);

impl OutputTail {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(&bytes[bytes.len().saturating_sub(MAX_OUTPUT)..]);
        let surplus = self.0.len().saturating_sub(MAX_OUTPUT);
        self.0.drain(..surplus);
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_of_an_output_is_kept() {
        let mut tail = OutputTail::default();
        for part in [vec![b'a'; 3000], vec![b'b'; 3000], b"\xffend".to_vec()] {
            tail.push(&part);
        }
        assert_eq!((tail.0.len(), tail.text().ends_with("b\u{fffd}end")), (MAX_OUTPUT, true));
        tail.push(&[b'c'; 10_000]);
        assert_eq!(tail.text(), "c".repeat(MAX_OUTPUT));
    }
}
