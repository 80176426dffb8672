//! Recognises secrets by the name they stand under (`--api-key`, `X-Api-Key`) or by their shape (`ghp_…`, a UUID, random
//! characters). Heuristic, and pure text: masking and its policies are in the parent module.

/// Whether the name of a flag, a variable, a header or a key indicates that its value is secret.
/// Separators and case do not matter for long words: `X-Api-Key`, `apiKey` and `APIKEY` are the same. A short word must
/// stand alone, set off by a separator or by a capital after a small letter: `my_key` and `myKey`, but not `mykey`.
pub fn is_secret_name(name: &str) -> bool {
    // Matched anywhere in the name, without separators.
    const SECRET_SUBSTRINGS: [&str; 11] = [
        "token",
        "secret",
        "password",
        "passwd",
        "passphrase",
        "apikey",
        "accesskey",
        "privatekey",
        "authorization",
        "credential",
        "connectionstring",
    ];
    // Matched as whole words only: `key`, but not `monkey`.
    const SECRET_WORDS: [&str; 14] =
        ["auth", "bearer", "cookie", "dsn", "jwt", "key", "pass", "pat", "pin", "pw", "pwd", "sas", "sig", "signature"];
    let letters: String = name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    SECRET_SUBSTRINGS.iter().any(|part| letters.contains(part))
        || split_words(name).iter().any(|word| SECRET_WORDS.contains(&word.as_str()))
}

/// Splits `--api-key`, `API_KEY` and `apiKey` into words in lower case.
fn split_words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut after_lower = false;
    for character in name.chars() {
        if !character.is_ascii_alphanumeric() || (after_lower && character.is_ascii_uppercase()) {
            words.push(String::new());
        }
        after_lower = character.is_ascii_lowercase();
        if let Some(word) = words.last_mut().filter(|_| character.is_ascii_alphanumeric()) {
            word.push(character.to_ascii_lowercase());
        }
    }
    words
}

/// Whether a value looks like a secret: by a known token prefix, as a UUID, or by its random characters.
pub(super) fn looks_secret(value: &str) -> bool {
    has_known_prefix(value) || is_uuid(value) || value.trim_end_matches('=').split(['-', '_', '+']).any(is_random_part)
}

/// Whether the whole value is a token of a well-known service. Names of packages and variables may have the same
/// prefix, such as `npm_config_registry`, but contain no digits.
pub(super) fn is_known_token(value: &str) -> bool {
    let is_token = value.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
    has_known_prefix(value) && is_token && value.contains(|c: char| c.is_ascii_digit())
}

/// Whether a value starts like the tokens of well-known services (GitHub, OpenAI, Slack, AWS, and so on).
fn has_known_prefix(value: &str) -> bool {
    // In this order: OpenAI and Stripe, GitHub, GitLab, Slack, AWS, Google, JSON Web Tokens, Toolcrib, Hugging Face,
    // npm, PyPI.
    const TOKEN_PREFIXES: [&str; 22] = [
        "sk-",
        "sk_",
        "pk_",
        "rk_",
        "ghp_",
        "gho_",
        "ghs_",
        "ghu_",
        "github_pat_",
        "glpat-",
        "xoxb-",
        "xoxp-",
        "xapp-",
        "AKIA",
        "ASIA",
        "AIza",
        "ya29.",
        "eyJ",
        "tcb_",
        "hf_",
        "npm_",
        "pypi-",
    ];
    // Short values with such a prefix are more likely names.
    value.len() >= 12 && TOKEN_PREFIXES.iter().any(|prefix| value.starts_with(prefix))
}

/// Whether this is long and mixes digits and letters, unlike a word.
/// Hyphenated names such as `server-filesystem` are split before, so each part is short or without digits.
fn is_random_part(part: &str) -> bool {
    let digits = part.chars().filter(char::is_ascii_digit).count();
    let letters = part.chars().filter(char::is_ascii_alphabetic).count();
    part.len() >= 16 && digits >= 2 && letters >= 4 && digits + letters == part.len()
}

/// Whether this is a UUID, which some services use as a capability in a URL.
fn is_uuid(value: &str) -> bool {
    let lengths: Vec<usize> = value.split('-').map(str::len).collect();
    lengths == [8, 4, 4, 4, 12] && value.chars().all(|c| c.is_ascii_hexdigit() || c == '-')
}
