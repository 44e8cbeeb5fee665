package tokenizer

import "unicode/utf8"

// Byte-level vocabularies write each byte as one printable character: the
// printable Latin-1 bytes stand for themselves, the 68 others are the characters
// from U+0100 on, in order.

// printable reports whether byte b is its own byte-level character.
func printable(b byte) bool {
	return b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae
}

// byteToRune returns the byte-level character of b.
func byteToRune(b byte) rune {
	switch {
	case printable(b):
		return rune(b)
	case b <= ' ':
		return 0x100 + rune(b)
	case b <= 0xa0:
		return 0x100 + 33 + rune(b-0x7f)
	}
	return 0x100 + 67 // 0xad, the soft hyphen
}

// runeToByte is the inverse of byteToRune.
func runeToByte(r rune) (byte, bool) {
	switch {
	case r < 0x100:
		return byte(r), r >= 0 && printable(byte(r))
	case r <= 0x100+' ':
		return byte(r - 0x100), true
	case r < 0x100+67:
		return byte(r - 0x100 - 33 + 0x7f), true
	}
	return 0xad, r == 0x100+67
}

// appendByteChars appends the byte-level spelling of word.
func appendByteChars(dst []byte, word string) []byte {
	for i := range len(word) {
		dst = utf8.AppendRune(dst, byteToRune(word[i]))
	}
	return dst
}

// spelledBytes returns how many bytes appendTokenBytes appends.
func spelledBytes(token string) int {
	n := 0
	for _, r := range token {
		if _, ok := runeToByte(r); !ok {
			return len(token)
		}
		n++
	}
	return n
}

// appendTokenBytes appends the bytes of a byte-level token. If one of its characters has no byte,
// it appends the token itself.
func appendTokenBytes(dst []byte, token string) []byte {
	start := len(dst)
	for _, r := range token {
		b, ok := runeToByte(r)
		if !ok {
			return append(dst[:start], token...)
		}
		dst = append(dst, b)
	}
	return dst
}
