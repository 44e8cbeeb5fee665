package tokenizer

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/heftai/heft/internal/golden"
)

const spmDecoder = `"decoder":{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"\u2581"},"content":" "},` +
	`{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]}`

// withBytes is a tokenizer whose tokens 0 to 255 are byte tokens and 256 is "x".
func withBytes(t *testing.T) *Tokenizer {
	t.Helper()
	var vocab []string
	for i := range 256 {
		vocab = append(vocab, fmt.Sprintf(`"<0x%02X>":%d`, i, i))
	}
	tok, err := Parse([]byte(`{` + spmDecoder + `,"model":{"type":"BPE","byte_fallback":true,"vocab":{` + strings.Join(vocab, ",") + `,"x":256},"merges":[]}}`))
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// streamAll joins the output of a stream, its retractions and its flush.
func streamAll(s *Stream, ids []int32) (shown string, retracted int, flushed string) {
	for _, id := range ids {
		text, _, err := s.Next(id)
		if err != nil {
			retracted++
		}
		shown += text
	}
	return shown, retracted, s.Flush()
}

func TestStreamFlush(t *testing.T) {
	tok := withBytes(t)
	cases := []struct {
		name           string
		ids            []int32
		shown, flushed string
		retracted      int
	}{
		{"nothing", nil, "", "", 0},
		{"a whole character", []int32{256, 0xc3, 0xa9}, "x\u00e9", "", 0},
		{"half a character at the end", []int32{256, 0xc3}, "x", "\ufffd", 0},
		{"half a character in the middle", []int32{0xc3, 256, 256}, "\ufffdxx", "", 0},
		{"a genuine U+FFFD", []int32{0xef, 0xbf, 0xbd}, "", "\ufffd", 0},
		{"a genuine U+FFFD and more", []int32{0xef, 0xbf, 0xbd, 256}, "\ufffdx", "", 0},
		{"a run turns out to be broken", []int32{0xc3, 0xa9, 0xff, 256, 256}, "\u00e9\ufffdxx", "", 1},
		{"unknown ids", []int32{999, 256, -1}, "x", "", 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := tok.NewStream(false)
			for range 2 { // the second time after Flush
				shown, retracted, flushed := streamAll(s, c.ids)
				if shown != c.shown || flushed != c.flushed || retracted != c.retracted {
					t.Errorf("%q, %d retractions, flush %q; want %q, %d, %q", shown, retracted, flushed, c.shown, c.retracted, c.flushed)
				}
			}
		})
	}
}

// TestStreamLinear: a model that never finishes a character, or is silent, must not
// make each token slower than the one before.
func TestStreamLinear(t *testing.T) {
	tok := withBytes(t)
	const n = 200_000
	for name, id := range map[string]func(i int) int32{
		"broken from the start": func(int) int32 { return 0xff },
		"broken after text":     func(i int) int32 { return []int32{256, 0xff}[min(i, 1)] },
		"unknown ids":           func(int) int32 { return 999 },
		"text":                  func(int) int32 { return 256 },
	} {
		start, s := time.Now(), tok.NewStream(true)
		for i := range n {
			if _, _, err := s.Next(id(i)); err != nil {
				t.Fatal(err)
			}
		}
		s.Flush()
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("%s: %d tokens took %v", name, n, took)
		}
	}
}

// TestStreamMatchesDecode: the output of a stream, flush included, equals that of Decode
// of every reference text.
func TestStreamMatchesDecode(t *testing.T) {
	for _, path := range golden.Glob(t, "text/tokenizers/tiny-*/cases.json") {
		data, err := golden.Read(strings.TrimSuffix(path, "cases.json") + FileName)
		if err != nil {
			continue
		}
		tok, err := Parse(data)
		if err != nil {
			t.Fatal(err)
		}
		if tok.fast() == nil {
			continue // decoders that treat the first token apart restart with each window
		}
		var file struct{ Cases []encodeCase }
		golden.JSON(t, path, &file)
		for _, c := range file.Cases {
			shown, retracted, flushed := streamAll(tok.NewStream(true), c.IDsSpecial)
			if want := tok.Decode(c.IDsSpecial, true); retracted == 0 && shown+flushed != want {
				t.Errorf("%s: %q: %q + %q, want %q", path, c.Text, shown, flushed, want)
			}
		}
	}
}

// TestStreamAllocates: a token costs the string that leaves, and nothing else.
func TestStreamAllocates(t *testing.T) {
	for _, c := range []struct {
		tok *Tokenizer
		ids []int32
	}{{withBytes(t), []int32{'b', 256, 'c'}}, {build(t, `"decoder":{"type":"ByteLevel"}`), []int32{5, 2, 5}}} {
		s := c.tok.NewStream(true)
		next := func() {
			for _, id := range c.ids {
				if _, ok, err := s.Next(id); !ok || err != nil {
					t.Fatal(ok, err)
				}
			}
		}
		next()
		if got := testing.AllocsPerRun(100, next); got > 3 {
			t.Errorf("%v allocations for 3 tokens", got)
		}
	}
}

// TestConcurrentUse is for the race detector.
func TestConcurrentUse(t *testing.T) {
	tok := build(t, `"normalizer":{"type":"NFKC"},"pre_tokenizer":{"type":"Whitespace"},"added_tokens":[{"content":"<x>"}]`)
	var group sync.WaitGroup
	for g := range 4 {
		group.Go(func() {
			for i := range 200 {
				text := strings.Repeat("ab c", i%7+g) + "<x>"
				e, err := tok.Encode(text, EncodeOptions{})
				ids, err2 := tok.EncodeIDs(text, EncodeOptions{})
				if err != nil || err2 != nil || len(e.IDs) != len(ids) || tok.Decode(ids, false) == "" {
					t.Errorf("%q: %v %v", text, err, err2)
				}
			}
		})
	}
	group.Wait()
}
