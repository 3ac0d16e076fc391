//! Copies of all that is kept.

use super::Engine;
use crate::api::BackedUp;
use crate::error::Result;
use crate::store::Scope;

impl Engine {
    /// Copies all that is kept into a directory of its own, while others go on; into the data directory when none is given.
    pub async fn back_up(&self, scope: &Scope, directory: Option<&str>) -> Result<BackedUp> {
        self.check_writable()?;
        let made = self.store.back_up(scope, directory, self.clock.now()).await?;
        Ok(BackedUp { warnings: self.warnings(), ..made })
    }
}
