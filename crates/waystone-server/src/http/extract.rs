//! What handlers take, with our errors: ids in paths, query strings, JSON bodies.

use std::str::FromStr;
use std::time::Duration;

use axum::body::{Body as HttpBody, Bytes, HttpBody as _};
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};
use waystone_core::error::IMPORTED;
use waystone_core::id::IdempotencyKey;
use waystone_core::offload::{INLINE_BYTES_MAX, offload};
use waystone_core::{Error, json};

use super::Http;
use super::reply::HttpError;
use super::spool::Spool;
use crate::request::{name_field, request_from};
use crate::room::{Taken, shrink};

/// What is read and dropped of a body that is too large, so that its sender gets to read the answer.
const DRAIN_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// So much of a body must come in this time, or its end.
const PROGRESS_BYTES: u64 = 1024 * 1024;
const PROGRESS_TIME: Duration = Duration::from_secs(30);

/// The one id in the path.
pub(super) struct Id<T>(pub(super) T);

impl<T: FromStr> FromRequestParts<Http> for Id<T>
where
    T::Err: std::fmt::Display,
{
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, state: &Http) -> Result<Self, HttpError> {
        let bad = |message: String| HttpError(Error::InvalidInput(message));
        let Path(id) =
            Path::<String>::from_request_parts(parts, state).await.map_err(|error| bad(error.body_text()))?;
        id.parse().map(Self).map_err(|error: T::Err| bad(error.to_string()))
    }
}

/// The two ids in the path.
pub(super) struct Ids<A, B>(pub(super) A, pub(super) B);

impl<A: FromStr<Err = String>, B: FromStr> FromRequestParts<Http> for Ids<A, B>
where
    B::Err: std::fmt::Display,
{
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, state: &Http) -> Result<Self, HttpError> {
        let bad = |message: String| HttpError(Error::InvalidInput(message));
        let ids = Path::<(String, String)>::from_request_parts(parts, state).await;
        let Path((first, second)) = ids.map_err(|error| bad(error.body_text()))?;
        Ok(Self(first.parse().map_err(bad)?, second.parse().map_err(|error: B::Err| bad(error.to_string()))?))
    }
}

/// The three ids in the path, of which the last two are of one kind.
pub(super) struct Pair<A, B>(pub(super) A, pub(super) B, pub(super) B);

impl<A: FromStr<Err = String>, B: FromStr<Err = String>> FromRequestParts<Http> for Pair<A, B> {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, state: &Http) -> Result<Self, HttpError> {
        let bad = |message: String| HttpError(Error::InvalidInput(message));
        let ids = Path::<(String, String, String)>::from_request_parts(parts, state).await;
        let Path((first, second, third)) = ids.map_err(|error| bad(error.body_text()))?;
        Ok(Self(first.parse().map_err(bad)?, second.parse().map_err(bad)?, third.parse().map_err(bad)?))
    }
}

/// The query string.
pub(super) struct Query<T>(pub(super) T);

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for Query<T> {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, HttpError> {
        parse_query(parts.uri.query().unwrap_or_default()).map(Self)
    }
}

fn parse_query<T: DeserializeOwned>(query: &str) -> Result<T, HttpError> {
    if !is_utf8_when_decoded(query) {
        return Err(HttpError(Error::InvalidInput("query: it is not UTF-8".to_owned())));
    }
    let value = serde_path_to_error::deserialize(serde_html_form::Deserializer::from_bytes(query.as_bytes()));
    value.map_err(|error| HttpError(name_field(error)))
}

/// A number in a query that is there: an empty one is not the same as none.
pub(super) fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    u64::deserialize(deserializer).map(Some)
}

/// Whether percent-escapes stand for text. The parser would replace what does not.
fn is_utf8_when_decoded(query: &str) -> bool {
    let bytes = query.as_bytes();
    let (mut decoded, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while let Some(&byte) = bytes.get(at) {
        let escape =
            bytes.get(at + 1..at + 3).and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        match escape.filter(|_| byte == b'%') {
            Some(escaped) => {
                decoded.push(escaped);
                at += 3;
            }
            None => {
                decoded.push(byte);
                at += 1;
            }
        }
    }
    std::str::from_utf8(&decoded).is_ok()
}

/// A JSON body, and the room it takes, which is held as long as what was in it.
pub(super) struct Body<T>(pub(super) T, pub(super) Option<Taken>);

impl<T: DeserializeOwned + Send + 'static> FromRequest<Http> for Body<T> {
    type Rejection = HttpError;

    async fn from_request(request: Request, state: &Http) -> Result<Self, HttpError> {
        check_content_type(request.headers())?;
        let (body, taken) = read_body(request.into_body(), state).await?;
        let length = body.len();
        let parse = move || request_from(json::parse_strict(&body).map_err(Error::InvalidInput)?);
        Ok(Self(offload(length, parse).await??, taken))
    }
}

/// What stands in the path or a header may stand in the body too, if it is the same.
pub(super) fn same<T: PartialEq>(field: &str, in_body: &mut Option<T>, elsewhere: T) -> Result<(), Error> {
    match in_body.replace(elsewhere) {
        Some(given) if Some(&given) != in_body.as_ref() => {
            Err(Error::InvalidInput(format!("{field} is given twice, with different values")))
        }
        _ => Ok(()),
    }
}

pub(super) const IDEMPOTENCY_KEY: &str = "Idempotency-Key";

/// The key by which a retry is recognised, from the header if it is there.
pub(super) fn take_key(headers: &HeaderMap, field: &str, in_body: &mut Option<IdempotencyKey>) -> Result<(), Error> {
    for key in headers.get_all(IDEMPOTENCY_KEY) {
        let key = key.to_str().map_err(|_| "it is not text".to_owned()).and_then(str::parse);
        let key = key.map_err(|error| Error::InvalidInput(format!("{IDEMPOTENCY_KEY}: {error}")))?;
        same(field, in_body, key)?;
    }
    Ok(())
}

/// A request of which the path has some fields and a JSON body the others, and the room it takes. A field may stand in both, if it is the same.
pub(super) struct Fields<T>(pub(super) T, pub(super) Option<Taken>);

impl<T: DeserializeOwned + Send + 'static> FromRequest<Http> for Fields<T> {
    type Rejection = HttpError;

    async fn from_request(request: Request, state: &Http) -> Result<Self, HttpError> {
        check_content_type(request.headers())?;
        let (mut parts, body) = request.into_parts();
        let in_path = path_fields(&mut parts, state).await?;
        let (body, taken) = read_body(body, state).await?;
        let length = body.len();
        let parse = move || {
            let mut value = json::parse_strict(&body).map_err(Error::InvalidInput)?;
            if let Some(fields) = value.as_object_mut() {
                for (name, given) in in_path {
                    match fields.insert(name.clone(), given.clone().into()) {
                        Some(other) if other != given => {
                            return Err(Error::InvalidInput(format!("{name} is given twice, with different values")));
                        }
                        _ => {}
                    }
                }
            }
            request_from(value)
        };
        Ok(Self(offload(length, parse).await??, taken))
    }
}

/// A request of which the path has some fields and the query the others.
pub(super) struct Filter<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequestParts<Http> for Filter<T> {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, state: &Http) -> Result<Self, HttpError> {
        let in_path = path_fields(parts, state).await?;
        let encoded = serde_html_form::to_string(&in_path).unwrap_or_default();
        let query = parts.uri.query().filter(|query| !query.is_empty());
        let all = query.map_or(encoded.clone(), |query| format!("{encoded}&{query}"));
        parse_query(&all).map(Self)
    }
}

/// The names in the path's pattern with what stands there.
async fn path_fields(parts: &mut Parts, state: &Http) -> Result<Vec<(String, String)>, HttpError> {
    let fields = Path::<Vec<(String, String)>>::from_request_parts(parts, state).await;
    let Path(fields) = fields.map_err(|error| HttpError(Error::InvalidInput(error.body_text())))?;
    Ok(fields)
}

pub(super) fn check_content_type(headers: &HeaderMap) -> Result<(), HttpError> {
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = given.split(';').next().unwrap_or_default().trim();
    if media_type.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(HttpError(Error::UnsupportedMediaType(given.chars().take(100).collect())))
}

/// Reads a body whole, when there is room for it. What is too long is read on and dropped before it is refused.
pub(super) async fn read_body(mut stream: HttpBody, http: &Http) -> Result<(Vec<u8>, Option<Taken>), HttpError> {
    let bytes_max = http.engine.limits().request_bytes_max();
    let announced = stream.size_hint().exact();
    let is_too_long = |length: u64| length.max(announced.unwrap_or_default()) > bytes_max;
    let mut taken = match announced {
        Some(bytes) if bytes <= bytes_max => http.room.body(bytes).await,
        _ => None,
    };
    let (mut body, mut length) = (Vec::new(), 0);
    let mut due = Instant::now() + PROGRESS_TIME;
    while let Some(data) = next_part(&mut stream, due).await? {
        let before = length;
        length += data.len() as u64;
        if is_too_long(length) {
            (body, taken) = (Vec::new(), None);
            if length > DRAIN_BYTES_MAX {
                break;
            }
        } else {
            // How long it will be is not known, so it gets all there is, at once: two that wait for more would wait for ever.
            if announced.is_none() && taken.is_none() && length > INLINE_BYTES_MAX as u64 {
                taken = http.room.body(bytes_max).await;
                due = Instant::now() + PROGRESS_TIME;
            }
            body.extend_from_slice(&data);
        }
        if length / PROGRESS_BYTES > before / PROGRESS_BYTES {
            due = Instant::now() + PROGRESS_TIME;
        }
    }
    if length > bytes_max {
        return Err(HttpError(Error::PayloadTooLarge { what: "the body", actual: length, max: bytes_max }));
    }
    let taken = shrink(taken, body.len());
    Ok((body, taken))
}

/// What comes with a request that takes no body: nothing, `null`, or an object with nothing in it.
pub(super) async fn read_nothing(mut stream: HttpBody) -> Result<(), HttpError> {
    const HELD_BYTES_MAX: u64 = 64 * 1024;
    let (mut body, mut length) = (Vec::new(), 0);
    let mut due = Instant::now() + PROGRESS_TIME;
    while let Some(data) = next_part(&mut stream, due).await? {
        let before = length;
        length += data.len() as u64;
        if length <= HELD_BYTES_MAX {
            body.extend_from_slice(&data);
        }
        if length > DRAIN_BYTES_MAX {
            break;
        }
        if length / PROGRESS_BYTES > before / PROGRESS_BYTES {
            due = Instant::now() + PROGRESS_TIME;
        }
    }
    if length > HELD_BYTES_MAX {
        return Err(HttpError(Error::InvalidInput("this request takes no body".to_owned())));
    }
    let fields = match json::parse_strict(&body) {
        _ if body.trim_ascii().is_empty() => return Ok(()),
        Ok(Value::Object(fields)) => fields,
        Ok(Value::Null) => return Ok(()),
        _ => return Err(HttpError(Error::InvalidInput("this request takes no body".to_owned()))),
    };
    match fields.keys().next() {
        None => Ok(()),
        Some(name) => {
            Err(HttpError(Error::InvalidInput(format!("unknown field `{name}`: this request takes no body"))))
        }
    }
}

/// A JSON body of up to `bytes_max`, in a file that only this process can read, and only until it has.
pub(super) async fn read_to_file(mut stream: HttpBody, bytes_max: u64) -> Result<Spool, HttpError> {
    const HELD_BYTES: usize = 1024 * 1024;
    let announced = stream.size_hint().exact().unwrap_or_default();
    let unwritten = |error: std::io::Error| Error::broken(format!("the body cannot be kept: {error}"));
    let mut spool = Spool::new().map_err(unwritten)?;
    let (mut held, mut length) = (Vec::new(), 0);
    let mut due = Instant::now() + PROGRESS_TIME;
    loop {
        let part = next_part(&mut stream, due).await?;
        let is_end = part.is_none();
        let data = part.unwrap_or_default();
        if (length + data.len() as u64) / PROGRESS_BYTES > length / PROGRESS_BYTES {
            due = Instant::now() + PROGRESS_TIME;
        }
        length += data.len() as u64;
        if length.max(announced) > bytes_max {
            held = Vec::new();
        } else {
            held.extend_from_slice(&data);
        }
        if is_end || held.len() >= HELD_BYTES {
            let full = std::mem::take(&mut held);
            let write = move || spool.append(full).map(|()| spool);
            spool = offload(usize::MAX, write).await?.map_err(unwritten)?;
        }
        if is_end || length > DRAIN_BYTES_MAX.max(bytes_max) {
            break;
        }
    }
    if length > bytes_max {
        return Err(HttpError(Error::PayloadTooLarge { what: IMPORTED, actual: length, max: bytes_max }));
    }
    spool.rewind().map_err(unwritten)?;
    Ok(spool)
}

/// The next part of a body, if it comes in time: others may be waiting for room.
async fn next_part(stream: &mut HttpBody, due: Instant) -> Result<Option<Bytes>, HttpError> {
    let broke_off = |why: String| HttpError(Error::InvalidInput(format!("the body broke off: {why}")));
    loop {
        let Ok(frame) = timeout_at(due, stream.frame()).await else {
            return Err(broke_off(format!("less than {PROGRESS_BYTES} bytes came in {} s", PROGRESS_TIME.as_secs())));
        };
        let Some(frame) = frame else { return Ok(None) };
        if let Ok(data) = frame.map_err(|error| broke_off(error.to_string()))?.into_data() {
            return Ok(Some(data));
        }
    }
}
