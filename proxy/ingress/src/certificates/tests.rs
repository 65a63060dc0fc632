//! Tests of the directory's files.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;

use model::network::certificate::StoredCertificate;
use model::value::secret::Secret;
use model::value::secret_key::SecretKey;

use super::known::{KnownCertificates, News};
use super::parse::{CertificateError, parse};
use super::{Certificates, files};
use crate::certificates::stored::StoredCertificates;
use crate::tests::authority::{Authority, Issued};

/// 2026-01-01.
const NOW: u64 = 1_767_225_600;
const DAY: u64 = 86_400;

fn update(known: &mut KnownCertificates, directory: &Path, now: u64) -> Vec<News> {
    known.update(files::read(directory).unwrap(), now)
}

fn served(known: &KnownCertificates) -> String {
    let one = |certificate: std::sync::Arc<super::parse::Certificate>| {
        format!("{}: {}", certificate.subject.file, certificate.subject.names.join(" "))
    };
    known.certificates().into_iter().map(one).collect::<Vec<_>>().join(", ")
}

fn error(news: &[News]) -> &CertificateError {
    match news {
        [News::Faulty { error, .. }] => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn certificates_are_found_by_name_and_in_the_layout_of_certbot() {
    let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new());
    let directory = folder.path().join("live");
    for name in ["live/b.example", "archive", "live/.hidden", "live/empty"] {
        std::fs::create_dir_all(folder.path().join(name)).unwrap();
    }
    authority.issue(&["A.example", "*.a.example"], 2030).write(&directory, "a");
    let Issued { chain, key } = authority.issue(&["b.example"], 2030);
    std::fs::write(folder.path().join("archive/fullchain1.pem"), &chain).unwrap();
    std::fs::write(folder.path().join("archive/privkey1.pem"), &key).unwrap();
    for name in ["fullchain", "privkey"] {
        let link = directory.join(format!("b.example/{name}.pem"));
        symlink(format!("../../archive/{name}1.pem"), link).unwrap();
    }
    std::fs::write(directory.join("README"), "no certificate").unwrap();
    let mut known = KnownCertificates::default();
    let news = update(&mut known, &directory, NOW);
    assert_eq!(served(&known), "a.crt: a.example *.a.example, b.example/fullchain.pem: b.example");
    let read = news.iter().filter(|news| matches!(news, News::Read { .. })).count();
    let exposed = news.iter().filter(|news| matches!(news, News::KeyExposed { .. })).count();
    assert_eq!((read, exposed), (2, 2), "{news:?}");
    assert_eq!(update(&mut known, &directory, NOW), []);
    // certbot renews by new files behind the links.
    let renewed = authority.issue(&["b.example", "www.b.example"], 2031);
    for (name, text) in [("fullchain", &renewed.chain), ("privkey", &renewed.key)] {
        std::fs::write(folder.path().join(format!("archive/{name}2.pem")), text).unwrap();
        let link = directory.join(format!("b.example/{name}.pem"));
        std::fs::remove_file(&link).unwrap();
        symlink(format!("../../archive/{name}2.pem"), link).unwrap();
    }
    update(&mut known, &directory, NOW);
    assert!(served(&known).ends_with("b.example/fullchain.pem: b.example www.b.example"));
    std::fs::remove_dir_all(directory.join("b.example")).unwrap();
    let gone = News::Gone { file: "b.example/fullchain.pem".to_owned() };
    assert_eq!(update(&mut known, &directory, NOW), [gone]);
    assert_eq!(served(&known), "a.crt: a.example *.a.example");
}

#[test]
fn a_faulty_file_keeps_what_was_served_and_is_told_of_once() {
    let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new());
    let good = authority.issue(&["a.example"], 2030);
    let other = authority.issue(&["other.example"], 2031);
    let expired = authority.issue(&["a.example"], 2025);
    let garbage = |chain: &str, key: &str| Issued { chain: chain.to_owned(), key: key.to_owned() };
    let mut known = KnownCertificates::default();
    good.write(folder.path(), "a");
    update(&mut known, folder.path(), NOW);
    for (faulty, expected) in [
        (garbage("none", &good.key), CertificateError::NoCertificate),
        (garbage(&good.chain, "none"), CertificateError::NoKey { key_file: "a.key".to_owned() }),
        (garbage(&good.chain, &other.key), CertificateError::OtherKey { key_file: "a.key".to_owned() }),
        (expired, CertificateError::Expired),
        (authority.issue(&[], 2030), CertificateError::NoNames),
    ] {
        faulty.write(folder.path(), "a");
        let news = update(&mut known, folder.path(), NOW);
        let news: Vec<News> =
            news.into_iter().filter(|news| !matches!(news, News::KeyExposed { .. })).collect();
        assert_eq!(error(&news), &expected);
        assert!(matches!(news[0], News::Faulty { is_kept: true, .. }));
        assert_eq!(update(&mut known, folder.path(), NOW), [], "{expected}");
        assert_eq!(served(&known), "a.crt: a.example");
    }
    std::fs::remove_file(folder.path().join("a.key")).unwrap();
    let news = update(&mut known, folder.path(), NOW);
    assert_eq!(error(&news), &CertificateError::NoKeyFile { key_file: "a.key".to_owned() });
    assert_eq!(update(&mut known, folder.path(), NOW), []);
    other.write(folder.path(), "a");
    update(&mut known, folder.path(), NOW);
    assert_eq!(served(&known), "a.crt: other.example");
}

/// Such as a file from the time before certificates were ordered.
#[test]
fn an_expired_file_gives_way_to_an_ordered_certificate() {
    let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new());
    authority.issue(&["a.example"], 2027).write(folder.path(), "a");
    let mut known = KnownCertificates::default();
    update(&mut known, folder.path(), NOW);
    let key = SecretKey::parse(&SecretKey::generate().unwrap()).unwrap();
    let stored = Arc::new(StoredCertificates::new(key.clone()));
    let certificates = Certificates::new(None, Some(stored.clone()));
    certificates.serve(&known, NOW);
    let from_file = certificates.find("a.example").unwrap();
    let is_from_file = |now| {
        certificates.serve(&known, now);
        Arc::ptr_eq(&certificates.find("a.example").unwrap(), &from_file)
    };
    let expired = NOW + 2 * 365 * DAY;
    assert!(is_from_file(expired), "it says more than none at all");
    let Issued { chain, key: pem } = authority.issue(&["a.example"], 2030);
    let ordered = StoredCertificate::seal("a.example", "d", chain, &Secret::new(pem), (1, 2), &key).unwrap();
    stored.serve(ordered).unwrap();
    assert!(is_from_file(NOW) && !is_from_file(expired));
}

#[test]
fn a_certificate_that_cannot_be_read_from_the_beginning_is_not_served() {
    let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new());
    authority.issue(&["a.example"], 2025).write(folder.path(), "expired");
    std::fs::write(folder.path().join("ca.pem"), "x").unwrap();
    symlink("/nowhere.pem", folder.path().join("link.pem")).unwrap();
    let mut known = KnownCertificates::default();
    let news = update(&mut known, folder.path(), NOW);
    let faulty: Vec<(&str, bool)> = news
        .iter()
        .filter_map(|news| match news {
            News::Faulty { file, is_kept, .. } => Some((file.as_str(), *is_kept)),
            _ => None,
        })
        .collect();
    assert_eq!(faulty, [("ca.pem", false), ("link.pem", false)], "{news:?}");
    assert_eq!(served(&known), "expired.crt: a.example");
}

#[test]
fn what_is_in_use_and_expires_is_warned_of_once_a_day() {
    let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new());
    authority.issue(&["a.example"], 2026).write(folder.path(), "a");
    authority.issue(&["b.example"], 2026).write(folder.path(), "b-old");
    authority.issue(&["b.example"], 2030).write(folder.path(), "b");
    let mut known = KnownCertificates::default();
    update(&mut known, folder.path(), NOW - 20 * DAY);
    let warned = |known: &mut KnownCertificates, now| match &update(known, folder.path(), now)[..] {
        [] => None,
        [News::Expires { file, seconds_left }] => Some((file.clone(), *seconds_left)),
        other => panic!("{other:?}"),
    };
    let of_a = |seconds_left| Some(("a.crt".to_owned(), seconds_left));
    assert_eq!(warned(&mut known, NOW - 15 * DAY), None);
    assert_eq!(warned(&mut known, NOW - 13 * DAY), of_a(13 * DAY as i64));
    assert_eq!(warned(&mut known, NOW - 13 * DAY + 3600), None);
    assert_eq!(warned(&mut known, NOW - 12 * DAY), of_a(12 * DAY as i64));
    assert_eq!(warned(&mut known, NOW + DAY), of_a(-(DAY as i64)));
}

#[test]
fn a_key_that_only_its_owner_reads_is_not_warned_of_and_none_is_ever_shown() {
    let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new());
    let issued = authority.issue(&["a.example"], 2030);
    issued.write(folder.path(), "a");
    let mode = std::fs::Permissions::from_mode(0o640);
    std::fs::set_permissions(folder.path().join("a.key"), mode).unwrap();
    let mut known = KnownCertificates::default();
    let news = update(&mut known, folder.path(), NOW);
    assert!(matches!(&news[..], [News::Read { .. }]), "{news:?}");
    let secret = issued.key.lines().nth(1).unwrap();
    assert!(!format!("{:?}", known.certificates()).contains(secret));
    let error = parse("a.crt", issued.chain.as_bytes(), "a.key", issued.key.replace('A', "B").as_bytes());
    assert!(!format!("{error:?}").contains(secret));
}
