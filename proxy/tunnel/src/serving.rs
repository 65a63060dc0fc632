//! Asks the proxy of another host for its serving pods, when Redis does not answer.
//!
//! The question is a line for each service and an empty one. The answer is `<service> <pod> <replica> <node>
//! <assignment> <state>` for each open pod, and an empty line.

use std::collections::BTreeSet;
use std::io;

use model::ids::{PodId, ServiceName};
use model::network::endpoint::Endpoint;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};

pub const MAX_SERVICES: usize = 256;
const MAX_QUESTION_BYTES: u64 = 64 * MAX_SERVICES as u64 + 1;
/// Far more than the pods of a host need.
const MAX_ANSWER_BYTES: u64 = 4 << 20;

pub type ServedPod = (ServiceName, Endpoint);

pub(super) async fn ask<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    services: &BTreeSet<ServiceName>,
) -> io::Result<Vec<ServedPod>> {
    let question: String = services.iter().map(|service| format!("{service}\n")).collect();
    stream.write_all(format!("{question}\n").as_bytes()).await?;
    stream.flush().await?;
    let mut served = Vec::new();
    for line in lines(&mut stream, MAX_ANSWER_BYTES).await? {
        let one = parse(&line).ok_or_else(|| io::Error::other("a line of the answer is no pod"))?;
        if services.contains(&one.0) {
            served.push(one);
        }
    }
    Ok(served)
}

pub(super) async fn answer<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    serving: impl Fn(&BTreeSet<ServiceName>) -> Vec<ServedPod>,
) -> io::Result<()> {
    let lines = lines(stream, MAX_QUESTION_BYTES).await?;
    let services = lines.into_iter().take(MAX_SERVICES).filter_map(|line| ServiceName::new(line).ok());
    let served = serving(&services.collect());
    let lines: String = served.iter().map(line).collect();
    stream.write_all(format!("{lines}\n").as_bytes()).await?;
    stream.shutdown().await
}

fn line((service, endpoint): &ServedPod) -> String {
    format!("{service} {} {endpoint}\n", endpoint.pod)
}

fn parse(line: &str) -> Option<ServedPod> {
    let mut parts = line.splitn(3, ' ');
    let (service, pod, rest) = (parts.next()?, parts.next()?, parts.next()?);
    let endpoint = Endpoint::parse(PodId::new(pod).ok()?, rest).ok()?;
    Some((ServiceName::new(service).ok()?, endpoint))
}

async fn lines<R: AsyncRead + Unpin>(from: &mut R, limit: u64) -> io::Result<Vec<String>> {
    let mut read = BufReader::new(from.take(limit)).lines();
    let mut lines = Vec::new();
    loop {
        match read.next_line().await? {
            Some(line) if line.is_empty() => return Ok(lines),
            Some(line) => lines.push(line),
            None => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn names(names: &[&str]) -> BTreeSet<ServiceName> {
        names.iter().map(|name| ServiceName::new(*name).unwrap()).collect()
    }

    async fn asked(question: &[&str], lines: &[&str]) -> io::Result<Vec<String>> {
        let (mut here, there) = tokio::io::duplex(64);
        let served: Vec<ServedPod> = lines.iter().map(|line| parse(line).unwrap()).collect();
        let answering = tokio::spawn(async move { answer(&mut here, |_| served.clone()).await });
        let answer = ask(there, &names(question)).await?;
        answering.await.unwrap().unwrap();
        Ok(answer.iter().map(|one| line(one).trim_end().to_owned()).collect())
    }

    #[tokio::test]
    async fn an_answer_has_the_pods_of_the_services_that_were_asked_for() {
        let lines = ["web p 0 w a ready", "web q 1 w b running", "db r 0 w c ready"];
        assert_eq!(asked(&["web"], &lines).await.unwrap(), lines[..2]);
        assert_eq!(asked(&["db", "web"], &lines).await.unwrap(), lines);
        assert!(asked(&["web"], &[]).await.unwrap().is_empty());
        let many: Vec<String> = (0..1000).map(|pod| format!("web p{pod} {pod} w a{pod} ready")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(asked(&["web"], &many).await.unwrap(), many);
    }

    #[tokio::test]
    async fn what_is_cut_off_or_no_answer_is_an_error() {
        for text in ["", "web p 0 w a ready\n", "web p 0 w a gone\n\n", "web p\n\n", "\u{0}"] {
            let (mut here, there) = tokio::io::duplex(1024);
            here.write_all(text.as_bytes()).await.unwrap();
            here.shutdown().await.unwrap();
            assert!(ask(there, &names(&["web"])).await.is_err(), "{text:?}");
        }
    }

    #[tokio::test]
    async fn a_question_has_a_longest() {
        let (mut here, mut there) = tokio::io::duplex(1 << 20);
        let long = "x\n".repeat(MAX_QUESTION_BYTES as usize);
        there.write_all(long.as_bytes()).await.unwrap();
        assert!(answer(&mut here, |_| Vec::new()).await.is_err());
    }
}
