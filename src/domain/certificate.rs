//! Why the certificate of a server is not accepted, in words.

/// Makes a certificate that serves as its own authority.
const OPENSSL: &str = "openssl req -x509 -newkey rsa:2048 -nodes -days 800 -subj /CN=HOST -addext \
                       subjectAltName=DNS:HOST -addext basicConstraints=critical,CA:FALSE -keyout key.pem -out cert.pem";

/// The words for an error of the TLS library, if its own are not enough. `flag` names the file of authorities.
pub fn fault(error: &str, flag: &str) -> Option<String> {
    let why = if error.contains("UnknownIssuer") {
        return Some(format!(
            "the certificate is from an issuer that is not trusted (a certificate authority of your own is named with \
             {flag})"
        ));
    } else if error.contains("CaUsedAsEndEntity") {
        "is that of a certificate authority"
    } else if error.contains("UnsupportedCertVersion") {
        "is not of version 3"
    } else {
        return None;
    };
    Some(format!(
        "the certificate {why}, which cannot be the certificate of a server; make one with `{OPENSSL}`, and name \
         cert.pem with {flag}"
    ))
}
