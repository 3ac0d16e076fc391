//! What looks like a secret and is none: placeholders, names of things, and sums of data.

use super::{DIGITS, HEX, LOWER, UPPER, alnum, join, pick};
use crate::contexts::Random;

/// Texts in which nothing is to be found, each with what it is.
pub fn near_misses(seed: u64) -> Vec<(&'static str, String)> {
    let r = &mut Random::new(seed);
    let mut all = Vec::new();
    for _ in 0..20 {
        let uuid = [8, 4, 4, 4, 12].map(|length| pick(r, &[HEX], length)).join("-");
        let sha = pick(r, &[HEX], 40);
        let base64 = |r: &mut Random, length| pick(r, &[UPPER, LOWER, DIGITS, "+/"], length);
        all.extend([
            ("a placeholder of AWS", join(&["aws_access_key_id = AK", "IA", "XXXXXXXXEXAMPLE"])),
            ("a placeholder of AWS", join(&["AWS_ACCESS_KEY_ID=AK", "IA", &"X".repeat(16)])),
            ("a placeholder of GitHub", join(&["token: gh", "p_", &"x".repeat(36)])),
            ("a placeholder of OpenAI", join(&["OPENAI_API_KEY=sk", "-...your-key-here..."])),
            (
                "a placeholder in a URL",
                "postgres://user:password@localhost/db and https://${USER}:${TOKEN}@host/".to_owned(),
            ),
            (
                "a placeholder in a file",
                "API_KEY=your-api-key-here-123\nPASSWORD=changeme123\nSECRET=<your secret>\n".to_owned(),
            ),
            (
                "a placeholder that is filled in",
                "password: {{ .Values.db.password1 }}\ntoken: ${API_TOKEN_V2}\n".to_owned(),
            ),
            (
                "a name in code",
                "let token = tokens.next_token2();\nself.password = read_password_v2(path)?;\n".to_owned(),
            ),
            (
                "a type in code",
                "struct Login { password: Option<String>, token: Arc<Token>, secret: [u8; 32] }".to_owned(),
            ),
            (
                "a lookup",
                "api_key = os.environ[\"SERVICE_API_KEY_V2\"]\npassword = config.get(\"db.password1\")".to_owned(),
            ),
            ("an id", format!("request {uuid} of session {uuid}")),
            ("an id under a key", format!("{{\"id\": \"{uuid}\", \"traceId\": \"{}\"}}", pick(r, &[HEX], 32))),
            ("a commit", format!("commit {sha}\nAuthor: A Person\n\n    merge {}..{}", &sha[..8], &sha[8..16])),
            ("a lock file", format!("name = \"serde\"\nversion = \"1.0.2\"\nchecksum = \"{}\"", pick(r, &[HEX], 64))),
            (
                "a lock file",
                format!("\"resolved\": \"https://host/a.tgz\", \"integrity\": \"sha512-{}==\"", base64(r, 86)),
            ),
            ("an image", format!("<img src=\"data:image/png;base64,{}\">", base64(r, 400))),
            ("data", format!("payload: {}", base64(r, 300))),
            ("a digest", format!("sha256:{} ok, etag \"{}\"", pick(r, &[HEX], 64), pick(r, &[HEX], 32))),
            ("a cursor", format!("GET /items?cursor={}&limit=50", alnum(r, 24))),
            (
                "a public key",
                join(&["-----BEGIN PUB", "LIC KEY-----\n", &base64(r, 64), "\n-----END PUB", "LIC KEY-----"]),
            ),
            (
                "prose",
                "The password must have 8 characters; a token: see below. Secret: none. Key=value pairs.".to_owned(),
            ),
            ("help", "--password <PASSWORD>  The password\n--token TOKEN_FILE_PATH_1  Where the token is".to_owned()),
        ]);
    }
    all
}
