package tokenizer

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/golden"
)

type goldenFile struct {
	VocabSize   int `json:"vocab_size"`
	Cases       []encodeCase
	DecodeCases []decodeCase `json:"decode_cases"`
	TokenBytes  []struct {
		ID    int32
		Token string
		Hex   *string
	} `json:"token_bytes"`
	BigCases []bigCase `json:"big_cases"`
	Pairs    []struct {
		A, B    string
		IDs     []int32
		TypeIDs []int32 `json:"type_ids"`
	}
}

type encodeCase struct {
	Text            string
	IDs             []int32
	IDsSpecial      []int32 `json:"ids_special"`
	Tokens          []string
	Offsets         [][2]int
	IDsSplitSpecial []int32 `json:"ids_split_special"`
	Decode          *string
	DecodeSkip      *string   `json:"decode_skip"`
	StreamSkip      []*string `json:"stream_skip"`
	StreamError     *string   `json:"stream_error"`
	StreamSkipError *string   `json:"stream_skip_error"`
}

type decodeCase struct {
	IDs             []int64
	Decode          *string
	DecodeSkip      *string `json:"decode_skip"`
	Stream          []*string
	StreamSkip      []*string `json:"stream_skip"`
	StreamError     *string   `json:"stream_error"`
	StreamSkipError *string   `json:"stream_skip_error"`
}

type bigCase struct {
	Repeat string
	N      int
	NIDs   int `json:"n_ids"`
	Head   []int32
	Tail   []int32
	SHA    string `json:"ids_sha256"`
}

func TestGoldenTokenizers(t *testing.T) {
	count := 0
	for _, path := range golden.Glob(t, "text/tokenizers/*/cases.json") {
		dir := filepath.Dir(path)
		data, err := golden.Read(filepath.Join(dir, FileName))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Run(filepath.Base(dir), func(t *testing.T) {
			tok, err := Parse(data)
			if err != nil {
				t.Fatal(err)
			}
			var file goldenFile
			golden.JSON(t, path, &file)
			count += len(file.Cases) + len(file.DecodeCases) + len(file.TokenBytes) + len(file.BigCases) + len(file.Pairs)
			if got := tok.VocabSize(); file.VocabSize > 0 && got != file.VocabSize {
				t.Errorf("vocabulary of %d, want %d", got, file.VocabSize)
			}
			file.check(t, tok)
		})
	}
	t.Cleanup(func() { golden.Count(t, "text/tokenizers", count) })
}

func (f *goldenFile) check(t *testing.T, tok *Tokenizer) {
	for _, c := range f.Cases {
		c.check(t, tok)
	}
	for _, c := range f.DecodeCases {
		c.check(t, tok)
	}
	for _, c := range f.BigCases {
		c.check(t, tok)
	}
	for _, c := range f.TokenBytes {
		got, ok := tok.TokenBytes(c.ID)
		if ok != (c.Hex != nil) || ok && hex.EncodeToString(got) != *c.Hex {
			t.Errorf("bytes of token %d %q: %x %v, want %v", c.ID, c.Token, got, ok, c.Hex)
		}
		if name, ok := tok.Token(c.ID); !ok || name != c.Token {
			t.Errorf("token %d: %q, want %q", c.ID, name, c.Token)
		}
		if id, ok := tok.ID(c.Token); !ok || id != c.ID {
			t.Errorf("id of %q: %d, want %d", c.Token, id, c.ID)
		}
	}
	for _, c := range f.Pairs {
		got, err := tok.EncodePair(c.A, c.B, EncodeOptions{AddSpecialTokens: true})
		if err != nil || !slices.Equal(got.IDs, c.IDs) || !slices.Equal(got.TypeIDs, c.TypeIDs) {
			t.Errorf("pair %q %q: %v types %v (%v), want %v types %v", c.A, c.B, got.IDs, got.TypeIDs, err, c.IDs, c.TypeIDs)
		}
	}
}

func (c *encodeCase) check(t *testing.T, tok *Tokenizer) {
	t.Helper()
	plain, err := tok.Encode(c.Text, EncodeOptions{})
	if err != nil || !slices.Equal(plain.IDs, c.IDs) {
		t.Errorf("%q: ids %v (%v), want %v", c.Text, plain.IDs, err, c.IDs)
		return
	}
	if c.Tokens != nil && !slices.Equal(plain.Tokens, c.Tokens) {
		t.Errorf("%q: tokens %q, want %q", c.Text, plain.Tokens, c.Tokens)
	}
	if c.Offsets != nil && !slices.Equal(plain.Offsets, c.Offsets) {
		t.Errorf("%q: offsets %v, want %v", c.Text, plain.Offsets, c.Offsets)
	}
	split := c.IDs
	if c.IDsSplitSpecial != nil {
		split = c.IDsSplitSpecial
	}
	for _, want := range []struct {
		opts EncodeOptions
		ids  []int32
	}{{EncodeOptions{}, c.IDs}, {EncodeOptions{AddSpecialTokens: true}, c.IDsSpecial}, {EncodeOptions{SplitSpecial: true}, split}} {
		if got, err := tok.EncodeIDs(c.Text, want.opts); err != nil || !slices.Equal(got, want.ids) {
			t.Errorf("%q %+v: ids %v (%v), want %v", c.Text, want.opts, got, err, want.ids)
		}
	}
	checkDecode(t, tok, c.IDsSpecial, false, c.Decode)
	checkDecode(t, tok, c.IDsSpecial, true, c.DecodeSkip)
	checkStream(t, tok, c.IDsSpecial, true, c.StreamSkip, c.StreamSkipError)
}

func (c *decodeCase) check(t *testing.T, tok *Tokenizer) {
	t.Helper()
	ids := make([]int32, len(c.IDs))
	for i, id := range c.IDs {
		ids[i] = int32(min(id, 1<<31-1))
	}
	checkDecode(t, tok, ids, false, c.Decode)
	checkDecode(t, tok, ids, true, c.DecodeSkip)
	checkStream(t, tok, ids, false, c.Stream, c.StreamError)
	checkStream(t, tok, ids, true, c.StreamSkip, c.StreamSkipError)
}

func checkDecode(t *testing.T, tok *Tokenizer, ids []int32, skip bool, want *string) {
	t.Helper()
	if want == nil {
		return
	}
	if got := tok.Decode(ids, skip); got != *want {
		t.Errorf("decode %v skip=%v: %q, want %q", ids, skip, got, *want)
	}
}

func checkStream(t *testing.T, tok *Tokenizer, ids []int32, skip bool, want []*string, wantErr *string) {
	t.Helper()
	if want == nil && wantErr == nil {
		return
	}
	s := tok.NewStream(skip)
	got := []*string{}
	for _, id := range ids[:min(len(ids), max(len(want), len(ids)*btoi(wantErr != nil)))] {
		text, ok, err := s.Next(id)
		if err != nil {
			var retracted *RetractedError
			if wantErr == nil || !errors.As(err, &retracted) || !strings.Contains(*wantErr, strconv.Itoa(int(retracted.ID))) {
				t.Errorf("stream %v skip=%v: %v, want error %v", ids, skip, err, wantErr)
			}
			return
		}
		if ok {
			got = append(got, &text)
		} else {
			got = append(got, nil)
		}
	}
	if wantErr != nil {
		t.Errorf("stream %v skip=%v: no error, want %s", ids, skip, *wantErr)
	} else if !reflect.DeepEqual(got, want) {
		t.Errorf("stream %v skip=%v: %q, want %q", ids, skip, deref(got), deref(want))
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func deref(list []*string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		if out[i] = "(nothing)"; s != nil {
			out[i] = *s
		}
	}
	return out
}

func (c *bigCase) check(t *testing.T, tok *Tokenizer) {
	t.Helper()
	text := strings.Repeat(c.Repeat, c.N)
	full, err := tok.Encode(text, EncodeOptions{})
	ids, err2 := tok.EncodeIDs(text, EncodeOptions{})
	if err != nil || err2 != nil || !slices.Equal(full.IDs, ids) {
		t.Errorf("%q x %d: Encode and EncodeIDs differ (%v, %v)", c.Repeat, c.N, err, err2)
		return
	}
	var all []byte
	for i, id := range ids {
		if i > 0 {
			all = append(all, ',')
		}
		all = strconv.AppendInt(all, int64(id), 10)
	}
	sum := sha256.Sum256(all)
	if len(ids) != c.NIDs || hex.EncodeToString(sum[:]) != c.SHA {
		t.Errorf("%q x %d: %d ids beginning %v, want %d beginning %v", c.Repeat, c.N, len(ids), ids[:min(16, len(ids))], c.NIDs, c.Head)
	}
}
