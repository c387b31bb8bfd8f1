//! Which of Debian's mirrors is asked.

use std::process::Command;

/// Environment variable that names it.
pub(crate) const MIRROR_VARIABLE: &str = "DXPU_VM_MIRROR";

/// Debian's own name for the nearest one.
const EVERYWHERE: &str = "http://deb.debian.org/debian";

/// Names under which a mirror has Debian's releases.
const RELEASES: &[&str] =
    &["bookworm", "trixie", "forky", "oldstable", "stable", "testing", "unstable", "sid"];

/// The mirror: from the environment, else the one that this system uses for itself, else Debian's.
pub(crate) fn mirror() -> String {
    if let Ok(named) = std::env::var(MIRROR_VARIABLE)
        && !named.is_empty()
    {
        return named.trim_end_matches('/').to_owned();
    }
    // Works without package lists, and understands all the forms that sources have.
    let format = "$(REPO_URI)|$(RELEASE)|$(COMPONENT)";
    let targets = Command::new("apt-get")
        .args(["indextargets", "--format", format, "Created-By: Packages"])
        .output()
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .unwrap_or_default();
    of_system(&targets).unwrap_or_else(|| EVERYWHERE.to_owned())
}

/// The first of a system's package sources that is a mirror of Debian.
fn of_system(targets: &str) -> Option<String> {
    targets.lines().find_map(|line| {
        let mut fields = line.split('|');
        let (uri, release, component) = (fields.next()?, fields.next()?, fields.next()?);
        let uri = uri.trim_end_matches('/');
        let plain = ["http://", "https://"].iter().any(|scheme| uri.starts_with(scheme));
        // Other people's packages have such names of releases, too, but not in such a place.
        let debian = uri.ends_with("/debian") && component == "main" && RELEASES.contains(&release);
        (plain && debian).then(|| uri.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_mirror_is_found_among_others() {
        let targets = "https://packages.example/ubuntu/|noble|main\n\
                       https://tools.example/|bookworm|main\n\
                       https://containers.example/linux/debian/|bookworm|stable\n\
                       http://mirror.example/debian-security/|bookworm-security|main\n\
                       cdrom:/debian/|bookworm|main\n\
                       http://mirror.example/debian/|bookworm|main\n\
                       http://second.example/debian/|bookworm|main\n";
        assert_eq!(of_system(targets).as_deref(), Some("http://mirror.example/debian"));
    }

    #[test]
    fn a_system_without_one_has_none() {
        assert_eq!(of_system("https://packages.example/ubuntu/|noble|main\n\nnonsense\n"), None);
        assert_eq!(of_system(""), None);
    }
}
