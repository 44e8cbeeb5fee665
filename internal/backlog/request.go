package backlog

import (
	"bytes"
	"strconv"
)

// peekBytes is the number of bytes of a request that are looked at. Larger requests are passed on
// when so many bytes have arrived, or with their header.
const peekBytes = 4 << 10

// A state is how much of a request has arrived.
type state int

const (
	partial  state = iota // not all of the header
	headed                // the header, and not all of a small body
	complete              // all that is waited for
)

// stateOf returns how much of the request is in b, the first bytes of a connection. Anything that
// is not plain HTTP, such as TLS, is complete, as the server can judge it. So is a request with a
// body that is large, has no announced size, or that the client sends only after a response.
func stateOf(b []byte) state {
	if len(b) == 0 {
		return partial
	}
	if len(b) >= peekBytes || b[0] < 'A' || b[0] > 'Z' {
		return complete
	}
	header, body, ok := bytes.Cut(b, []byte("\r\n\r\n"))
	if !ok {
		if header, body, ok = bytes.Cut(b, []byte("\n\n")); !ok {
			return partial
		}
	}
	if _, expects := field(header, "expect"); expects {
		return complete
	}
	value, ok := field(header, "content-length")
	if !ok {
		return complete
	}
	size, err := strconv.Atoi(value)
	if err != nil || size > peekBytes-(len(b)-len(body)) || len(body) >= size {
		return complete
	}
	return headed
}

// field returns the value of the first field of that name, which is in lower case.
func field(header []byte, name string) (string, bool) {
	for line := range bytes.Lines(header) {
		key, value, ok := bytes.Cut(line, []byte(":"))
		if ok && len(key) == len(name) && string(bytes.ToLower(key)) == name {
			return string(bytes.TrimSpace(value)), true
		}
	}
	return "", false
}
