//! Where a page of a list ended, as clients carry it to the next one.

use waystone_core::Error;

pub(crate) fn write(seq: i64) -> String {
    format!("{seq:x}")
}

/// The number behind `cursor`, or one beyond all numbers when there is none: lists run from high to low.
pub(crate) fn read(cursor: Option<&str>) -> Result<i64, Error> {
    let Some(text) = cursor else { return Ok(i64::MAX) };
    i64::from_str_radix(text, 16).map_err(|_| Error::InvalidInput("cursor is not one that a list returned".to_owned()))
}
