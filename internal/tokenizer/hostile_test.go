package tokenizer

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/heftai/heft/internal/golden"
)

// allocated is how many bytes run allocates, garbage included.
func allocated(run func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	run()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestVocabulariesWithHoles: ids beyond the number of entries were refused, although the
// reference takes them. They take no memory.
func TestVocabulariesWithHoles(t *testing.T) {
	for _, top := range []int32{258_884, 1 << 30, maxID - 1} {
		text := fmt.Sprintf(`{"added_tokens":[{"content":"<x>"},{"content":"far","special":true},{"content":"<y>"}],"decoder":{"type":"ByteLevel"},
			"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":7,"far":%d},"merges":["a b"]}}`, top)
		var tok *Tokenizer
		size := allocated(func() {
			var err error
			if tok, err = Parse([]byte(text)); err != nil {
				t.Fatal(err)
			}
		})
		if size > 8<<20 {
			t.Errorf("id %d: parsing took %d bytes", top, size)
		}
		// An added token that is not in the vocabulary has the number of entries as its id, or
		// one more than the largest added one: the reference's rule.
		want := []int32{7, 4, top, top + 1, 0}
		ids, err := tok.EncodeIDs("ab<x>far<y>a", EncodeOptions{})
		if err != nil || !slices.Equal(ids, want) {
			t.Errorf("id %d: %v, %v, want %v", top, ids, err, want)
		}
		if got := tok.Decode(want, false); got != "ab<x>far<y>a" {
			t.Errorf("id %d: decoded %q", top, got)
		}
		if n := tok.VocabSize(); n != int(top)+2 {
			t.Errorf("id %d: a size of %d", top, n)
		}
		if token, ok := tok.Token(top - 1); ok {
			t.Errorf("id %d is %q, want none", top-1, token)
		}
	}
	if _, err := Parse([]byte(`{"model":{"type":"BPE","vocab":{"a":4294967295}}}`)); err == nil || !strings.Contains(err.Error(), "2147483647") {
		t.Errorf("an id that is no int32: %v", err)
	}
}

// TestAnAddedTokenWithAnIDBeyond32BitsIsRefused: ids of added tokens follow from their places, but
// the reference rejects a file whose ids are not unsigned 32-bit numbers.
func TestAnAddedTokenWithAnIDBeyond32BitsIsRefused(t *testing.T) {
	for id, want := range map[string]bool{"5000000000": false, "4294967296": false, "-1": false, "1.5": false, `"2"`: false, "null": false, "true": false,
		"4294967295": true, "0": true, " 7 ": true} {
		_, err := Parse([]byte(`{"added_tokens":[{"id":` + id + `,"content":"<x>"}],"model":{"type":"BPE","vocab":{"a":0}}}`))
		if ok := err == nil; ok != want || !ok && !strings.Contains(err.Error(), "added_tokens[0].id") {
			t.Errorf("an added token with the id %s: %v", id, err)
		}
	}
}

// TestATokenizerInAnotherFormatIsNamed: a folder without tokenizer.json said only that.
func TestATokenizerInAnotherFormatIsNamed(t *testing.T) {
	for want, files := range map[string][]string{
		"spiece.model, ": {"spiece.model", "config.json"}, "vocab.json, but neither merges.txt nor": {"vocab.json"}, "vocab.json with merges.txt": {"merges.txt", "vocab.json"},
		"qwen.tiktoken and no": {"qwen.tiktoken", "tokenizer_config.json"}, "tiktoken.model and no": {"tiktoken.model"}, "has no tokenizer.json": nil,
	} {
		dir := fstest.MapFS{}
		for _, f := range files {
			dir[f] = &fstest.MapFile{Data: []byte("{}")}
		}
		_, err := LoadFS(dir, "M")
		if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), want) || files != nil && !strings.Contains(err.Error(), "pip install") {
			t.Errorf("%v: %v", files, err)
		}
	}
	class := fstest.MapFS{"tokenizer.model": &fstest.MapFile{}, "config.json": &fstest.MapFile{Data: []byte(`{"model_type":"t5","tokenizer_class":"T5Tokenizer"}`)}}
	if _, err := LoadFS(class, "M"); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), `class "T5Tokenizer"`) || !strings.Contains(err.Error(), "pip install") {
		t.Errorf("a class that is not supported: %v", err)
	}
	if _, err := Load(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	folder := t.TempDir()
	if err := os.Mkdir(filepath.Join(folder, FileName), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(folder); err == nil || errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a folder in place of the file: %v", err)
	}
}

var parsed = map[string]*Tokenizer{}

// everyTokenizer runs test with each of the reference's fixtures.
func everyTokenizer(t *testing.T, test func(t *testing.T, tok *Tokenizer)) {
	t.Helper()
	for _, path := range golden.Glob(t, "text/tokenizers/*/"+FileName) {
		data, err := golden.Read(path)
		if err != nil {
			t.Fatal(err)
		}
		tok, ok := parsed[path]
		if !ok {
			tok, _ = Parse(data) // nil for those that are not supported
			parsed[path] = tok
		}
		if tok != nil {
			t.Run(filepath.Base(filepath.Dir(path)), func(t *testing.T) { test(t, tok) })
		}
	}
}

// TestTextsTakeFortyBytesAByte: a word of some megabytes took more than a hundred.
func TestTextsTakeFortyBytesAByte(t *testing.T) {
	texts := map[string]string{"one letter": strings.Repeat("a", 1<<18), "noise": noise(1<<18, 1), "spaces": strings.Repeat(" ", 1<<18)}
	everyTokenizer(t, func(t *testing.T, tok *Tokenizer) {
		for name, text := range texts {
			for _, special := range []bool{false, true} {
				var err error
				o := EncodeOptions{AddSpecialTokens: special, Reserve: func(int) error { return nil }}
				_, _ = tok.EncodeIDs(text[:100], o) // memory that is kept for later
				size := allocated(func() { _, err = tok.EncodeIDs(text, o) })
				if err == nil && size > uint64(40*len(text)) {
					t.Errorf("%s: %d bytes for %d", name, size, len(text))
				}
			}
		}
	})
}

// noise is text of n lower-case letters in no order.
func noise(n int, seed uint64) string {
	r := rand.New(rand.NewPCG(seed, 0))
	b := make([]byte, n)
	for i := range b {
		b[i] = 'a' + byte(r.IntN(26))
	}
	return string(b)
}

// TestReserveIsAskedBeforeALongWord: memory that is not free is not taken.
func TestReserveIsAskedBeforeALongWord(t *testing.T) {
	full := errors.New("full")
	everyTokenizer(t, func(t *testing.T, tok *Tokenizer) {
		for _, text := range []string{strings.Repeat("a", 1<<18), noise(1<<18, 2), strings.Repeat("\U0001F600", 1<<16)} {
			var err error
			size := allocated(func() {
				_, err = tok.EncodeIDs(text, EncodeOptions{Reserve: func(n int) error {
					if n > 1<<18 {
						return full
					}
					return nil
				}})
			})
			if err != nil && !errors.Is(err, full) || errors.Is(err, full) && size > uint64(16*len(text)) {
				t.Errorf("%.5q: %v after %d bytes", text, err, size)
			}
		}
	})
}

// TestQueuedMergesEqualSimpleMerges: long words are merged with a queue, from which stale entries
// are removed when it is full. The result is that of searching for each next merge.
func TestQueuedMergesEqualSimpleMerges(t *testing.T) {
	everyTokenizer(t, func(t *testing.T, tok *Tokenizer) {
		b, ok := tok.model.(*bpe)
		if !ok {
			return
		}
		for i := range uint64(40) {
			r := rand.New(rand.NewPCG(i, 1))
			word := make([]byte, 25+r.IntN(800))
			letters := 1 + r.IntN(8)
			for k := range word {
				word[k] = "eatn oii"[r.IntN(letters)]
			}
			queued, simple := new(workWord), new(workWord)
			b.cut(queued, string(word))
			b.cut(simple, string(word))
			if err := queued.mergeQueued(b.merges, nil); err != nil {
				t.Fatal(err)
			}
			mergeSlowly(simple, b.merges)
			for a, c := queued.first(), simple.first(); a >= 0 || c >= 0; a, c = queued.syms[a].next, simple.syms[c].next {
				if a < 0 || c < 0 || queued.syms[a].id != simple.syms[c].id || queued.syms[a].size != simple.syms[c].size {
					t.Fatalf("%q is merged otherwise", word)
				}
			}
		}
	})
}

// mergeSlowly looks at all pairs for each merge.
func mergeSlowly(w *workWord, merges *pairTable) {
	for {
		best, at, into := int32(noRank), int32(-1), int32(0)
		for i := w.first(); i >= 0 && w.syms[i].next >= 0; i = w.syms[i].next {
			if rank, fused, ok := merges.get(w.syms[i].id, w.syms[w.syms[i].next].id); ok && rank < best {
				best, at, into = rank, i, fused
			}
		}
		if at < 0 {
			return
		}
		w.join(at, into)
	}
}

// TestHostileDecodersEnd: a file's decoder could double each text as often as it liked, try a
// pattern for ever with each token, or say nothing, so that each new token was decoded with all
// those before it.
func TestHostileDecodersEnd(t *testing.T) {
	double := `{"type":"Replace","pattern":{"String":"a"},"content":"aa"}`
	slow := `{"type":"Replace","pattern":{"Regex":"(a|a)+(a|a)+(a|a)+c"},"content":"b"}`
	long := strings.Repeat("a", 5000)
	vocab := func() string {
		var b strings.Builder
		for i := range 2000 {
			fmt.Fprintf(&b, `,"%s%d":%d`, strings.Repeat("a", 30), i, i+8)
		}
		return b.String()
	}()
	for name, parts := range map[string]string{
		"doubling": strings.Repeat(double+",", 40) + double,
		"slow":     strings.Repeat(slow+",", 5) + slow,
		"silent":   `{"type":"Replace","pattern":{"Regex":"."},"content":""}`,
		"many":     strings.Repeat(`{"type":"Strip","content":"x","start":1,"stop":1},`, 20000) + double,
	} {
		for shape, tail := range map[string]string{"": "", ", fast": `,{"type":"ByteFallback"},{"type":"Fuse"}`} {
			t.Run(name+shape, func(t *testing.T) {
				tok, err := Parse([]byte(`{"decoder":{"type":"Sequence","decoders":[` + parts + tail + `]},
					"model":{"type":"BPE","vocab":{"a":0,"` + long + `":1` + vocab + `}}}`))
				if err != nil {
					t.Fatal(err)
				}
				ids := make([]int32, 5000)
				for i := range ids {
					ids[i] = int32(i % 2000)
				}
				text, bytes := tok.Decode(ids, false), 0
				for _, id := range ids {
					token, _ := tok.Token(id)
					bytes += len(token)
				}
				if len(text) > decodeRoom+(1+roomPerByte)*bytes {
					t.Errorf("%d bytes of text", len(text))
				}
				s := tok.NewStream(false)
				for _, id := range ids[:300] {
					if _, _, err := s.Next(id); err != nil {
						break // the decoder says so
					}
				}
				s.Flush()
				_, _ = tok.TokenBytes(1)
			})
		}
	}
}

// TestAStreamThatIsSilentForLongLosesNothing: tokens without text are decoded in steps.
func TestAStreamThatIsSilentForLongLosesNothing(t *testing.T) {
	tok := build(t, `"decoder":{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"b"},"content":""}]}`)
	var ids []int32
	for i := range 3000 {
		ids = append(ids, 2) // "b", of which nothing is left
		if i%700 == 699 {
			ids = append(ids, 1, 3)
		}
	}
	s, text := tok.NewStream(false), ""
	for _, id := range ids {
		more, _, err := s.Next(id)
		if err != nil {
			t.Fatal(err)
		}
		text += more
	}
	if text += s.Flush(); text != tok.Decode(ids, false) {
		t.Errorf("%q, want %q", text, tok.Decode(ids, false))
	}
}

// TestSpaceAroundAddedTokensIsReadOnce: each of many tokens in white space looked at all of it.
func TestSpaceAroundAddedTokensIsReadOnce(t *testing.T) {
	tok := build(t, `"added_tokens":[{"content":"\t","lstrip":true,"rstrip":true}]`)
	ids, err := tok.EncodeIDs("a"+strings.Repeat(" \t", 1<<19)+"b", EncodeOptions{})
	if err != nil || len(ids) != 3 {
		t.Errorf("%d ids, %v", len(ids), err)
	}
}

// TestHostilePatternsShareTheirSteps: a pattern that is slow on each piece had all steps for each.
func TestHostilePatternsShareTheirSteps(t *testing.T) {
	tok := build(t, `"pre_tokenizer":{"type":"Sequence","pretokenizers":[
		{"type":"FixedLength","length":40},
		{"type":"Split","pattern":{"Regex":"(a|a)+(a|a)+(a|a)+(a|a)+c"},"behavior":"Isolated"}]}`)
	if _, err := tok.EncodeIDs(strings.Repeat("a", 1<<16), EncodeOptions{}); !errors.Is(err, ErrTooSlow) {
		t.Errorf("%v, want ErrTooSlow", err)
	}
}

// TestLongTokensOfWordPieceAreBounded: each place of a word tried all lengths of the longest token.
func TestLongTokensOfWordPieceAreBounded(t *testing.T) {
	long := strings.Repeat("a", 20000)
	tok, err := Parse([]byte(`{"model":{"type":"WordPiece","unk_token":"?","max_input_chars_per_word":1000000000,"vocab":{"?":0,"a":1,"##a":2,"b` + long + `":3}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tok.EncodeIDs(strings.Repeat("a", 1<<18), EncodeOptions{}); !errors.Is(err, ErrTooSlow) {
		t.Errorf("%v, want ErrTooSlow", err)
	}
}
