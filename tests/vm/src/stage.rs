//! Where tests with guests take place, one at a time.

use crate::cache::{Cache, Kernel, News, Unavailable};
use anyhow::{Context, Result};
use std::fs::File;

/// The cache, and nobody else's guests: guests that share a processor are slower than one after the
/// other, and the proxies beside them late.
pub struct Stage {
    /// QEMU, the guest's tools and the kernels.
    pub cache: Cache,
    _alone: File,
}

impl Stage {
    /// Takes the stage, waiting for the tests of this build that have it, be they in this process
    /// or not; nothing where there can be no machines, which is told.
    ///
    /// # Errors
    ///
    /// When the cache or the file beside this program that is locked cannot be written.
    pub fn take(kernels: &[Kernel]) -> Result<Option<Self>> {
        let mut tell = |news: News<'_>| {
            if let News::Step(text) = news {
                println!("{text}");
            }
        };
        let cache = match Cache::open(kernels, &mut tell) {
            Ok(cache) => cache,
            Err(error) if error.is::<Unavailable>() => {
                println!("SKIPPED: no virtual machines: {error:#}");
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let file = processes::own_folder()?.join("vm-stage.lock");
        let alone = File::create(&file).with_context(|| file.display().to_string())?;
        alone.lock()?;
        Ok(Some(Self { cache, _alone: alone }))
    }
}
