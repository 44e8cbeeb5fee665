package wire

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestATextWatchFindsLongTexts: in whatever pieces a body comes, a text of the prompt that is too long
// is found, and no other.
func TestATextWatchFindsLongTexts(t *testing.T) {
	long := strings.Repeat("a", 11)
	for body, want := range map[string]string{
		`{"prompt": "` + long + `"}`: "prompt",
		`{"model": "m", "a": {"b": [1, {"c": "}"}]}, "input" : "` + long + `"}`:                             "input",
		`{"messages": [{"role": "user", "content": "` + long + `"}]}`:                                       "messages",
		`{"messages": [{"content": "x", "b": [[{}]]}, {"content": "` + long + `"}]}`:                        "messages",
		`{"prompt": "` + strings.Repeat("\u4e2d", 4) + `"}`:                                                 "prompt",
		`{"prompt": "` + long[1:] + `"}`:                                                                    "",
		`{"prompt": "` + strings.Repeat("a ", 10) + `"}`:                                                    "",
		`{"prompt": "` + strings.Repeat(`\n`, 40) + long[1:] + `"}`:                                         "",
		`{"prompt": "` + strings.Repeat(`\u0020`, 40) + long[1:] + `"}`:                                     "",
		`{"prompt": "` + strings.Repeat("\u3000\u00a0\u2003", 9) + `"}`:                                     "",
		`{"prompt": [["` + long + `"]], "user": "` + long + `", "x": {"prompt": "` + long + `"}}`:           "",
		`{"prompt": ["a", "` + long + `"]}`:                                                                 "prompt",
		`{"input": ["` + long[1:] + `", "` + long[1:] + `"]}`:                                               "",
		`{"messages": [{"content": [{"type": "text", "text": "` + long + `"}]}]}`:                           "messages",
		`{"messages": [{"content": "aaaaaa"}, {"content": [{"text": "aaa"}, {"text": "aa"}]}]}`:             "messages",
		`{"messages": [{"content": "aaaaaa"}, {"content": [{"text": "aaa"}, {"url": "aa"}]}]}`:              "",
		`{"instructions": "` + long + `"}`:                                                                  "instructions",
		`{"input": [{"type": "message", "content": "` + long + `"}]}`:                                       "input",
		`{"input": [{"role": "user", "content": [{"type": "input_text", "text": "` + long + `"}]}]}`:        "input",
		`{"input": [{"content": "aaaaaa"}, {"content": [{"text": "aaaaaa"}]}, {"output": "` + long + `"}]}`: "",
		`{"messages": [{"content": "aaaaaa"}], "prompt": "aaaaaa"}`:                                         "",
		`{"messages": {"content": "` + long + `"}, "prompt": 1, "a": "` + long + `"}`:                       "",
		`{"messages": [{"name": "` + long + `", "a": {"content": "` + long + `"}, "b": "` + long + `"}]}`:   "",
		`{"` + long + long + `": "a", "a\"prompt": "` + long + `"}`:                                         "",
		`{"a": "\"prompt\": \"", "b": "` + long + `"}`:                                                      "",
	} {
		for size := 1; size <= len(body); size++ {
			w, got := textWatch{most: 10}, ""
			for rest := body; rest != "" && got == ""; {
				n := min(size, len(rest))
				got = w.push([]byte(rest[:n]))
				rest = rest[n:]
			}
			if got != want {
				t.Errorf("%s in pieces of %d: got %q, want %q", body, size, got, want)
				break
			}
		}
	}
}

// countedReader is a body that says when all of it was read.
type countedReader struct {
	io.Reader
	n   int
	end func()
}

func (r *countedReader) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	if r.n += n; errors.Is(err, io.EOF) && r.end != nil {
		r.end()
		r.end = nil
	}
	return n, err
}

// TestATextThatCannotFitIsRefusedBeforeItIsBuffered: the whole body was buffered first. Its memory is
// released before the rest of it is dropped.
func TestATextThatCannotFitIsRefusedBeforeItIsBuffered(t *testing.T) {
	const size, most = 8 << 20, 1 << 10
	errLong := errors.New("too long")
	for _, chunked := range []bool{false, true} {
		var seen int
		limit := &TextLimit{Bytes: most, Refuse: func(field string, bytes int) error {
			seen = bytes
			return fmt.Errorf("%s: %w", field, errLong)
		}}
		m := memoryOf(64 << 20)
		var held int64
		body := &countedReader{Reader: io.MultiReader(strings.NewReader(`{"prompt": "`), strings.NewReader(strings.Repeat("a", size)), strings.NewReader(`"}`))}
		body.end = func() { held = m.held.used }
		var err error
		h := m.Limit(plainFor)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, err = ReadBodyWithin(r.Context(), r.Body, limit)
		}))
		r := httptest.NewRequest("POST", "/", body)
		if r.ContentLength = size + 14; chunked {
			r.ContentLength = -1
		}
		h.ServeHTTP(httptest.NewRecorder(), r)
		if !errors.Is(err, errLong) || seen != most+1 {
			t.Errorf("chunked %t: %v after %d bytes, want one more than %d", chunked, err, seen, most)
		}
		if body.n != size+14 || held > requestBytes {
			t.Errorf("chunked %t: %d bytes of the body were taken, with %d reserved at its end", chunked, body.n, held)
		}
	}
}

// BenchmarkTextWatch measures the cost of the watch for a body without a long text.
func BenchmarkTextWatch(b *testing.B) {
	for name, body := range map[string]string{
		"ids":      `{"prompt": [` + strings.Repeat("1, ", 1<<18) + `1]}`,
		"messages": `{"messages": [` + strings.Repeat(`{"role": "user", "content": "What is two plus two?"},`, 1<<14) + `{}]}`,
		"other":    `{"metadata": "` + strings.Repeat("a", 1<<20) + `"}`,
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			text := []byte(body)
			for b.Loop() {
				w := textWatch{most: 1 << 20}
				if w.push(text) != "" {
					b.Fatal("a long text was found")
				}
			}
		})
	}
}
