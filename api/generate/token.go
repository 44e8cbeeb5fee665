package generate

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// TokenText returns the text of one id by itself, and its bytes. bytes is nil if they are unknown
// or there is no tokenizer. Bytes that are not UTF-8, because they are a part of a character, are
// written as escapes (\xe2\x80); whole is then false. Without a tokenizer the text is "token_id:N".
func (m *Model) TokenText(id int32) (text string, bytes []byte, whole bool) {
	if m.Tokenizer == nil {
		return "token_id:" + strconv.Itoa(int(id)), nil, true
	}
	b, ok := m.Tokenizer.TokenBytes(id)
	if !ok {
		if name, known := m.Tokenizer.Token(id); known {
			return name, nil, true
		}
		return "token_id:" + strconv.Itoa(int(id)), nil, true
	}
	if utf8.Valid(b) {
		return string(b), b, true
	}
	return escape(b), b, false
}

func escape(b []byte) string {
	const digits = "0123456789abcdef"
	var s strings.Builder
	for _, c := range b {
		s.WriteString(`\x`)
		s.WriteByte(digits[c>>4])
		s.WriteByte(digits[c&15])
	}
	return s.String()
}
