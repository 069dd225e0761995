//! The checksum of a gzip file (RFC 1952, 8).

pub fn crc32(content: &[u8]) -> u32 {
    let shifted = |crc: u32, _| if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 };
    !content.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), shifted))
}
