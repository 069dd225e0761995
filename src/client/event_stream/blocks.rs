//! The blocks of a stream of server-sent events, read line by line.

use std::io::{self, BufRead as _, BufReader, Read};

/// The length of a line, and of the data of a block. The longest event of the server has a few KB.
const MAX_LINE: usize = 1 << 20;

/// The fields up to an empty line. Comments are left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Block {
    pub id: Option<String>,
    pub event: Option<String>,
    pub data: Option<String>,
    /// Milliseconds.
    pub retry: Option<u64>,
}

/// Reads blocks.
pub struct Blocks<R> {
    reader: BufReader<R>,
    line: Vec<u8>,
}

impl<R: Read> Blocks<R> {
    pub fn new(reader: R) -> Self {
        Self { reader: BufReader::new(reader), line: Vec::new() }
    }

    /// The next block with a field; `None` at the end. A block that is cut off does not count.
    ///
    /// # Errors
    /// If the stream cannot be read, or has a line of more than 1 MiB.
    pub fn next_block(&mut self) -> io::Result<Option<Block>> {
        let mut block = Block::default();
        while self.read_line()? {
            if !self.line.is_empty() {
                block.add(&String::from_utf8_lossy(&self.line))?;
            } else if block != Block::default() {
                return Ok(Some(block));
            }
        }
        Ok(None)
    }

    /// Reads a line without its end; false at the end of the stream.
    fn read_line(&mut self) -> io::Result<bool> {
        self.line.clear();
        let read = (&mut self.reader).take(MAX_LINE as u64 + 1).read_until(b'\n', &mut self.line)?;
        if read > MAX_LINE {
            return Err(too_long());
        }
        if self.line.pop() != Some(b'\n') {
            return Ok(false);
        }
        if self.line.last() == Some(&b'\r') {
            self.line.pop();
        }
        Ok(true)
    }
}

impl Block {
    fn add(&mut self, line: &str) -> io::Result<()> {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "id" => self.id = Some(value.to_owned()),
            "event" => self.event = Some(value.to_owned()),
            "retry" => self.retry = value.parse().ok(),
            "data" => match &mut self.data {
                Some(data) if data.len() + value.len() > MAX_LINE => return Err(too_long()),
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => self.data = Some(value.to_owned()),
            },
            _ => {}
        }
        Ok(())
    }
}

fn too_long() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the stream has an event of more than 1 MiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns one byte at a time.
    struct Drops<'a>(&'a [u8]);

    impl Read for Drops<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            (&mut self.0).take(1).read(buffer)
        }
    }

    fn block(id: &str, event: &str, data: &str) -> Block {
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Block { id: text(id), event: text(event), data: text(data), retry: None }
    }

    #[test]
    fn blocks_are_read_however_their_bytes_arrive() {
        let text = "retry: 2000\n\nid: a-1\nevent: hello\ndata: {\"x\":\"é\"}\n\n: beat\n\n: beat\nid: a-2\n\n\
                    id: a-3\r\nevent:e\r\ndata: 1\r\ndata: 2\r\nunknown: x\r\n\r\nid: a-4\nevent: cut\ndata: 3\n";
        let mut blocks = Blocks::new(Drops(text.as_bytes()));
        let mut next = || blocks.next_block().unwrap();
        assert_eq!(next(), Some(Block { retry: Some(2_000), ..Block::default() }));
        assert_eq!(next(), Some(block("a-1", "hello", "{\"x\":\"é\"}")));
        assert_eq!(next(), Some(block("a-2", "", "")), "a beat with a position");
        assert_eq!(next(), Some(block("a-3", "e", "1\n2")));
        assert_eq!(next(), None, "the last block has no end");
    }

    #[test]
    fn an_event_without_an_end_is_refused() {
        let endless = io::repeat(b'x');
        assert_eq!(Blocks::new(endless).next_block().unwrap_err().kind(), io::ErrorKind::InvalidData);
        let line = format!("data: {}\n", "x".repeat(MAX_LINE / 2));
        let many = line.repeat(3);
        assert_eq!(Blocks::new(many.as_bytes()).next_block().unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
