//! Backups that an operator makes, lists, downloads and deletes.

use cued::service::operator::back_up;

use crate::cli::administration::mode;
use crate::support::*;

const BACKUPS: &str = "/v1/admin/backups";

fn with_folder() -> (Server, Client, TempDir) {
    let folder = TempDir::new().unwrap();
    let flags = ["--dev", "--limits", "off", "--backup-dir", folder.path().to_str().unwrap()];
    let (server, operator) = Server::with_user(&flags);
    (server, operator, folder)
}

fn make(operator: &Client) -> Value {
    operator.bare("POST", BACKUPS).expect(201)
}

#[track_caller]
fn assert_checks(file: &Path) {
    let checked = run(&["check", file.to_str().unwrap()]);
    assert_eq!(checked.status.code(), Some(0), "{}", String::from_utf8_lossy(&checked.stderr));
}

#[test]
fn a_backup_under_load_is_whole_and_can_be_downloaded_and_deleted() {
    let (_server, operator, folder) = with_folder();
    let cue = operator.create(&worker_cue("c", YEARLY));
    let is_over = AtomicBool::new(false);
    let made = thread::scope(|scope| {
        let caller = operator.clone();
        let (is_over, cue) = (&is_over, &cue);
        scope.spawn(move || {
            while !is_over.load(Ordering::SeqCst) {
                caller.fire(cue);
            }
        });
        until_true("there is some history", || {
            operator.read("/v1/executions")["total"].as_i64() > Some(20)
        });
        let made = make(&operator);
        is_over.store(true, Ordering::SeqCst);
        made
    });
    let name = made.text("name");
    let file = folder.path().join(name);
    assert_checks(&file);
    let bytes = fs::metadata(&file).unwrap().len();
    assert_eq!((mode(&file), &made["bytes"]), (0o600, &json!(bytes)));
    assert!(made["took_ms"].is_u64() && made["created_at"].is_string(), "{made}");
    fs::write(folder.path().join("other.db"), "somebody's").unwrap();
    fs::create_dir(folder.path().join("cued-20200101T000000Z.db")).unwrap();
    let listed = operator.read(BACKUPS);
    let expected = json!({"name": name, "bytes": made["bytes"], "created_at": made["created_at"]});
    assert_eq!(listed["backups"], json!([expected]), "only backups");

    let path = format!("{BACKUPS}/{name}");
    let downloaded = operator.get(&path);
    assert!(downloaded.status == 200 && downloaded.body == fs::read(&file).unwrap());
    let disposition = format!("attachment; filename=\"{name}\"");
    assert_eq!(downloaded.header("content-disposition"), Some(disposition.as_str()));
    assert_eq!(downloaded.header("content-length"), Some(made["bytes"].to_string().as_str()));
    let head = operator.bare("HEAD", &path);
    assert_eq!(head.status, 200);
    assert_eq!(head.header("content-length"), downloaded.header("content-length"));
    operator.delete(&path).expect(204);
    assert!(!file.exists());
    operator.delete(&path).expect_error(404, "backup_not_found");
    operator.get(&path).expect_error(404, "backup_not_found");
    assert_eq!(operator.read("/v1/admin/settings")["backup_dir"], json!(folder.path()));
}

#[test]
fn no_name_leads_out_of_the_folder() {
    let (_server, operator, folder) = with_folder();
    let secret = folder.path().join("cued-20200101T000000Z.db");
    let target = folder.path().join("target");
    fs::write(&target, "somebody's").unwrap();
    std::os::unix::fs::symlink(&target, &secret).unwrap();
    fs::write(folder.path().join("other.db"), "somebody's").unwrap();
    let names = "other.db ..%2Fcued.db ..%2f..%2f..%2fetc%2fpasswd %2Fetc%2Fpasswd . cued-20200101T000000Z.db \
        cued-20200101T000000Z.db%00 ..%2Fcued-20200101T000000Z.db";
    for name in words(names) {
        let path = format!("{BACKUPS}/{name}");
        operator.get(&path).expect_error(404, "backup_not_found");
        operator.delete(&path).expect_error(404, "backup_not_found");
    }
    operator.get(&format!("{BACKUPS}/../settings")).expect_error(404, "not_found");
    assert!(target.exists() && secret.exists());
    assert_eq!(operator.read(BACKUPS)["backups"], json!([]));
}

#[test]
fn a_folder_that_cannot_be_used_is_an_error_that_says_so() {
    let (_server, operator) = Server::with_user(DEV_UNLIMITED);
    operator.post(BACKUPS, &json!({})).refuses(409, "invalid_state", "--backup-dir");
    assert_eq!(operator.read(BACKUPS)["backups"], json!([]));
    let flags = ["--dev", "--limits", "off", "--backup-dir", "/nowhere/at/all"];
    let (_server, operator) = Server::with_user(&flags);
    for refused in [operator.post(BACKUPS, &json!({})), operator.get(BACKUPS)] {
        refused.refuses(409, "invalid_state", "/nowhere/at/all");
    }
}

#[test]
fn backups_are_made_one_at_a_time_and_listed_newest_first() {
    let folder = TempDir::new().unwrap();
    let to = folder.path().to_owned();
    let api = Api::configured(move |config| config.backup_dir = Some(to));
    let operator = api.user("ann");
    api.fixture.sql("UPDATE users SET is_operator = 1");
    let running = api.fixture.app.backups.lock();
    operator.post(BACKUPS, &json!({})).expect_error(409, "invalid_state");
    drop(running);
    let names = [make(&operator), make(&operator)].map(|made| made["name"].clone());
    // Two backups of the same second have two names.
    assert_eq!(names, ["cued-20260101T100000Z.db", "cued-20260101T100001Z.db"]);
    api.fixture.advance(61);
    assert_eq!(make(&operator)["created_at"], "2026-01-01T10:01:01Z");
    let names = ["100101", "100001", "100000"].map(|time| format!("cued-20260101T{time}Z.db"));
    assert_eq!(operator.read(BACKUPS).column("backups", "name"), names);
}

#[test]
fn a_large_backup_is_streamed_in_little_memory() {
    let (server, operator, folder) = with_folder();
    let large = folder.path().join("cued-20200101T000000Z.db");
    fs::File::create(&large).unwrap().set_len(192 << 20).unwrap();
    let before = peak_mb(server.pid());
    let mut connection = Connection::open(server.addr()).unwrap();
    connection.send(&format!(
        "GET {BACKUPS}/cued-20200101T000000Z.db HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\
         Connection: close\r\n\r\n",
        server.addr(),
        operator.key()
    ));
    let read = std::io::copy(connection.stream(), &mut std::io::sink()).unwrap();
    assert!(read > 190 << 20, "{read}");
    let grown = peak_mb(server.pid()).saturating_sub(before);
    assert!(grown < 16, "{grown} MB for a download");
}

#[test]
fn a_backup_ends_with_the_server_and_leaves_no_file() {
    let folder = TempDir::new().unwrap();
    let to = folder.path().to_owned();
    let api = Api::configured(move |config| config.backup_dir = Some(to));
    api.fixture.sql(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9999)
         INSERT INTO meta SELECT 'row' || i, i FROM n",
    );
    let stopped = back_up(&api.fixture.app, api.fixture.now(), Box::new(|| true)).unwrap_err();
    assert!(stopped.to_string().contains("storage_unavailable"), "{stopped}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
