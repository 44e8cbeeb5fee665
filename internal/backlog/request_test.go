package backlog

import (
	"strings"
	"testing"
)

func TestStateOf(t *testing.T) {
	const post = "POST / HTTP/1.1\r\nHost: a\r\n"
	for b, want := range map[string]state{
		"":                                      partial,
		"GET / HTTP/1.1\r\nHost:":               partial,
		"GET / HTTP/1.1\r\nHost: a\r\n\r\n":     complete,
		"GET / HTTP/1.0\n\n":                    complete,
		"\x16\x03\x01":                          complete, // TLS
		"\r\nGET":                               complete,
		post + "Content-Length: 5\r\n\r\n":      headed,
		post + "CONTENT-LENGTH:5\r\n\r\n1234":   headed,
		post + "Content-Length: 5\r\n\r\n12345": complete,
		post + "Content-Length: 5\n\n1":         headed,
		post + "Content-Length: 5\r\nExpect: 100-continue\r\n\r\n":    complete,
		post + "Content-Length: 5000\r\n\r\n":                         complete, // may be rejected unread
		post + "Content-Length: -5\r\n\r\n":                           complete, // for the server to reject
		post + "Content-Length: 99999999999999999999\r\n\r\n":         complete,
		post + "Content-Length: 9223372036854775807\r\n\r\n":          complete,
		post + "Transfer-Encoding: chunked\r\n\r\n1":                  complete,
		"GET / HTTP/1.1\r\nCookie: " + strings.Repeat("a", peekBytes): complete,
	} {
		if got := stateOf([]byte(b)); got != want {
			t.Errorf("%.80q is %d, want %d", b, got, want)
		}
	}
}
