//! `image`: making, signing and looking at images.

use std::path::Path;

use card_image::{AntiDowngrade, BoardName, Header, KeyId, Refusal, Role, SecurityVersion, SlotId};
use serde::Serialize;
use soc::settings::Policy;

use super::args::{Build, Image, SigningKey};
use super::views::ImageView;
use super::{Bench, cannot_write, key_trouble, read_image, read_program};
use crate::board::Board;
use crate::failure::{Failure, Kind, Outcome};
use crate::files;
use crate::image::{Label, Purpose, Signer, from_elf, keys, purpose, sign, whole};

pub(super) fn image(bench: &Bench, command: &Image) -> Outcome<()> {
    match command {
        Image::Build(said) => build(bench, said),
        Image::Sign { image, key, output } => {
            resign(bench, image, key, output.as_deref().unwrap_or(image))
        }
        Image::Inspect { image } => inspect(bench, image),
        Image::Keygen { file } => keygen(bench, file),
    }
}

/// What is wrong with an image.
pub(super) fn refused(path: &Path, refusal: Refusal) -> Failure {
    let failure = Failure::new(Kind::Image, format!("{}: {refusal}", path.display()));
    match refusal {
        Refusal::NotAnImage => {
            failure.check("make one of the ELF file with `dxpu-flash image build`")
        }
        Refusal::Truncated { .. } | Refusal::HeaderDamaged | Refusal::BadCrc => {
            failure.check("was it copied to the end? Copy or build it again")
        }
        Refusal::Malformed(_) | Refusal::BadDigest => failure
            .check("another program made it, or changed it: build it again with `dxpu-flash image build`"),
        Refusal::NewerFormat(_) => failure.check("use a newer dxpu-flash"),
        Refusal::Unsigned => failure.check("sign it with `dxpu-flash image sign`"),
        Refusal::UnknownKey(_) => failure.checks(&[
            "sign it with a key that the card trusts",
            "if the card's boot loader was built with that key, name it with --trust NUMBER=FILE",
            "have the card trust it: `dxpu-flash config set trust=NUMBER:KEY` with the public key's 64 digits",
        ]),
        Refusal::BadSignature => failure.checks(&[
            "was it changed after it was signed? Copy it again, or sign it with `dxpu-flash image sign`",
            "another key may have the same number: `dxpu-flash image inspect IMAGE` says which it is, and \
             --trust NUMBER=FILE names the right one",
        ]),
        Refusal::OtherBoard(_) => failure.check("use the image that was built for this board"),
        Refusal::OtherRole(_) => failure.check("use the image that was built for this role"),
        Refusal::TooLarge { .. } => failure.checks(&[
            "build it smaller: in release mode, without debugging code",
            "is it the right board file? Its `layout` has the length of a slot",
        ]),
        Refusal::NoMemory { .. } => failure.checks(&[
            "is it linked for this board? Its linker script says where it is loaded to",
            "is it the right board file? Its `memory` is where images may be",
        ]),
        Refusal::Downgrade { .. } => failure
            .check("use a release that has the repairs that the card has had already")
            .check(DOWNGRADE),
        Refusal::NotAsRecorded => failure.check("write it again: `dxpu-flash write IMAGE`"),
    }
}

/// What to do where it has to be the older one.
const DOWNGRADE: &str = "if it has to be this one, have the card start older ones, too: \
    `dxpu-flash config set downgrade=allow`";

/// What is wrong with what a slot of the card has.
pub(super) fn refused_in_slot(slot: SlotId, refusal: Refusal) -> Failure {
    let again = format!("write one to it: `dxpu-flash write IMAGE --slot {slot}`");
    let failure = Failure::new(Kind::Image, format!("slot {slot}: {refusal}"));
    match refusal {
        Refusal::NotAnImage => failure.check(again),
        Refusal::Truncated { .. } | Refusal::HeaderDamaged | Refusal::BadCrc => failure
            .check(format!(
                "write the image again: `dxpu-flash write IMAGE --slot {slot}`; it may have been interrupted, \
                 which `dxpu-flash info` shows as writing"
            ))
            .check("if it stays so, the flash is worn out")
            .check("until then the boot loader starts the other slot, if that has a good image"),
        Refusal::NewerFormat(_) => failure.check("use a newer dxpu-flash"),
        Refusal::Unsigned | Refusal::UnknownKey(_) | Refusal::BadSignature => failure
            .check(format!(
                "the boot loader does not start it: write one that is signed with a key that the card \
                 trusts: `dxpu-flash write IMAGE --slot {slot}`"
            ))
            .check("if the boot loader was built with that key, name it with --trust NUMBER=FILE")
            .check("what else it trusts, its settings say: `dxpu-flash config get`"),
        Refusal::Downgrade { .. } => {
            failure.check(format!("the boot loader does not start it; {again}")).check(DOWNGRADE)
        }
        _ => failure.check(format!("the boot loader does not start it; {again}")),
    }
}

fn write_file(path: &Path, bytes: &[u8]) -> Outcome<()> {
    files::replace(path, bytes).map_err(|error| cannot_write(path, &error))
}

/// The board that an image is built for: it has to be said, since no card is there.
fn board(bench: &Bench) -> Outcome<Board> {
    let candidates = bench.candidates()?;
    match &candidates.boards[..] {
        [only] if candidates.named => Ok(only.clone()),
        _ => Err(Failure::new(Kind::Input, "for which board is the image?")
            .check("say --board NAME or --board-file FILE")),
    }
}

fn build(bench: &Bench, said: &Build) -> Outcome<()> {
    let board = board(bench)?;
    let elf = read_program(&said.elf)?;
    let program = from_elf(&elf).map_err(|error| {
        Failure::new(Kind::Input, format!("{}: {error}", said.elf.display()))
            .check("give the ELF file that the firmware's build leaves, such as `fw-box`")
    })?;
    check_purpose(&said.elf, purpose(&elf), (board.name, said.role))?;
    let label = Label {
        board: board.name,
        role: said.role,
        version: said.version,
        security: SecurityVersion(said.security_version),
    };
    let secret = said.key.as_deref().map(read_secret).transpose()?;
    let signer = secret.as_ref().zip(said.key_number);
    let signer = signer.map(|(secret, number)| Signer { number, secret });
    let image =
        program.image(&label, signer.as_ref()).map_err(|error| refused(&said.elf, error))?;
    let header = Header::parse(&image).expect("it was just made");
    check_fits(&header, &board).map_err(|refusal| refused(&said.elf, refusal))?;
    write_file(&said.output, &image)?;
    let view = ImageView::from(&header);
    bench.out.print(&view, |view| format!("{}: {}", said.output.display(), view.text()))
}

/// A program that says for what it is, is for that: a card would start it, and it would never join.
fn check_purpose(
    elf: &Path,
    purpose: Option<Purpose>,
    (board, role): (BoardName, Role),
) -> Outcome<()> {
    let Some(purpose) = purpose else { return Ok(()) };
    if purpose.role == role.to_string() && purpose.board == board.as_str() {
        return Ok(());
    }
    let what = format!(
        "{} is the firmware of a {} on the board {}, not of a {role} on {board}",
        elf.display(),
        purpose.role,
        purpose.board
    );
    Err(Failure::new(Kind::Input, what)
        .check(format!("say --role {} and --board {}", purpose.role, purpose.board))
        .check("or give the ELF file of the other firmware"))
}

/// What the board itself would refuse, whoever signed it.
fn check_fits(header: &Header, board: &Board) -> Result<(), Refusal> {
    // How old an image may be is a card's to say, and there is none here.
    let requirements = board.requirements(header.role, &[], AntiDowngrade::Off);
    let slot = board.layout.slots()[0].len;
    match header.check(&requirements, slot, SecurityVersion(0)) {
        // Keys come last.
        Err(Refusal::Unsigned | Refusal::UnknownKey(_)) | Ok(()) => Ok(()),
        Err(refusal) => Err(refusal),
    }
}

fn read_secret(path: &Path) -> Outcome<[u8; 32]> {
    keys::read_secret(path).map_err(|error| key_trouble(&error))
}

fn resign(bench: &Bench, path: &Path, key: &SigningKey, output: &Path) -> Outcome<()> {
    let secret = read_secret(&key.key)?;
    let signer = Signer { number: key.key_number, secret: &secret };
    let image = sign(&read_image(path)?, &signer).map_err(|refusal| refused(path, refusal))?;
    write_file(output, &image)?;
    let view = ImageView::from(&Header::parse(&image).expect("it was just made"));
    bench.out.print(&view, |view| format!("{}: {}", output.display(), view.text()))
}

#[derive(Serialize)]
struct Inspected {
    #[serde(flatten)]
    image: ImageView,
    /// Whether the key is one of those that are known; none when the image is not signed.
    trusted: Option<bool>,
}

fn inspect(bench: &Bench, path: &Path) -> Outcome<()> {
    let header = whole(&read_image(path)?).map_err(|refusal| refused(path, refusal))?;
    // The board's keys, where the program knows it.
    let boards = bench.candidates()?.boards;
    let board = boards.iter().find(|board| board.name == header.board);
    if board.is_none() && bench.args.board.is_some_and(|name| name != header.board) {
        return Err(refused(path, Refusal::OtherBoard(header.board)));
    }
    let trusted = match header.check_signature(&bench.keys(board, &Policy::default())?) {
        Ok(()) => Some(true),
        Err(Refusal::Unsigned) => None,
        Err(Refusal::UnknownKey(_)) => Some(false),
        Err(refusal) => return Err(refused(path, refusal)),
    };
    if let Some(board) = board {
        check_fits(&header, board).map_err(|refusal| refused(path, refusal))?;
    }
    let view = Inspected { image: ImageView::from(&header), trusted };
    bench.out.print(&view, |view| inspected_text(view, header.key))
}

fn inspected_text(Inspected { image, trusted }: &Inspected, key: KeyId) -> String {
    let signature = match trusted {
        None => "not signed".to_owned(),
        Some(true) => format!("right, by the known key {key}"),
        Some(false) => format!("by key {key}, which is not known here (--trust NUMBER=FILE)"),
    };
    format!(
        "version           {}\nsecurity version  {}\nboard             {}\nrole              {}\n\
         bytes             {}, payload undamaged\nruns at           {:#010x}, from {:#010x}\n\
         signature         {signature}\nid                {}",
        image.version,
        image.security_version,
        image.board,
        image.role,
        image.length,
        image.load,
        image.entry,
        image.id
    )
}

fn keygen(bench: &Bench, file: &Path) -> Outcome<()> {
    let made = keys::generate(file).map_err(|error| key_trouble(&error))?;
    let public = keys::digits(&made.public);
    // As they are shown: a name need not be UTF-8, JSON is.
    let [file, public_file] = [file, &made.file].map(|file| file.display().to_string());
    let body = serde_json::json!({ "file": file, "public": public, "public_file": public_file });
    bench.out.print(&body, |_| {
        format!(
            "{file}: keep it secret and a copy of it safe; its public half is in {public_file}:\n{public}"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_built_for_what_it_says() {
        let board = |name: &str| BoardName::new(name).unwrap();
        let says = || Some(Purpose { role: "box".into(), board: "litex".into() });
        let check = |purpose, board, role| check_purpose(Path::new("fw"), purpose, (board, role));
        assert!(check(says(), board("litex"), Role::Box).is_ok());
        for (other, role) in [("litex", Role::Host), ("litex", Role::Any), ("qemu-virt", Role::Box)]
        {
            let failure = check(says(), board(other), role).unwrap_err();
            assert_eq!(failure.check[0], "say --role box and --board litex", "{failure}");
            assert!(check(None, board(other), role).is_ok());
        }
    }

    #[test]
    fn whatever_is_wrong_with_an_image_comes_with_what_to_do() {
        let (board, key) = (card_image::BoardName::new("other").unwrap(), KeyId(7));
        let versions = (SecurityVersion(1), SecurityVersion(2));
        for refusal in [
            Refusal::Truncated { have: 1, need: 2 },
            Refusal::NotAnImage,
            Refusal::NewerFormat(9),
            Refusal::HeaderDamaged,
            Refusal::Malformed("entry"),
            Refusal::OtherBoard(board),
            Refusal::OtherRole(Role::Host),
            Refusal::TooLarge { length: 2, room: 1 },
            Refusal::NoMemory { load: 0 },
            Refusal::Unsigned,
            Refusal::UnknownKey(key),
            Refusal::BadSignature,
            Refusal::Downgrade { has: versions.0, lowest: versions.1 },
            Refusal::BadCrc,
            Refusal::BadDigest,
            Refusal::NotAsRecorded,
        ] {
            for failure in
                [refused(Path::new("a.img"), refusal), refused_in_slot(SlotId::A, refusal)]
            {
                assert!(!failure.check.is_empty(), "{failure}");
            }
        }
    }
}
