package tokenizer

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// TestATextThatCannotFitIsRefusedUnread: a text of more bytes, letters or words than the context's
// tokens can stand for was tokenized all the same; WordPiece and Unigram read all of it.
func TestATextThatCannotFitIsRefusedUnread(t *testing.T) {
	texts := map[string]string{"words": strings.Repeat("a ", 16<<20), "one word": strings.Repeat("a", 32<<20)}
	everyTokenizer(t, func(t *testing.T, tok *Tokenizer) {
		for name, text := range texts {
			if _, ok := tok.model.(*wordPiece); ok && name == "one word" {
				// It is one unknown token, whatever its length: it fits.
				if ids, err := tok.EncodeIDs(text[:1<<20], EncodeOptions{MaxTokens: 1}); err != nil || len(ids) != 1 {
					t.Errorf("%s: %d tokens, %v; want one", name, len(ids), err)
				}
				continue
			}
			var many *TooManyError
			var err error
			size := allocated(func() { _, err = tok.EncodeIDs(text, EncodeOptions{MaxTokens: 4096}) })
			if !errors.As(err, &many) || many.AtLeast != tok.LeastTokens(text) || size > 1024 {
				t.Errorf("%s: %v after %d bytes", name, err, size)
			}
		}
	})
}

// unboundTokenizers are tokenizers that make one token of unknown text of any length.
var unboundTokenizers = map[string]string{
	"unigram, NFC": `{"normalizer":{"type":"NFC"},"pre_tokenizer":{"type":"Metaspace","replacement":"▁"},` + unboundUnigram,
	"unigram, as T5": `{"normalizer":{"type":"Sequence","normalizers":[{"type":"Nmt"},{"type":"NFKC"},{"type":"Strip","strip_left":false,"strip_right":true},
		{"type":"Replace","pattern":{"Regex":" {2,}"},"content":"▁"}]},"pre_tokenizer":{"type":"Metaspace","replacement":"▁"},` + unboundUnigram,
	"unigram, as Albert": `{"normalizer":{"type":"Sequence","normalizers":[{"type":"Replace","pattern":{"String":"''"},"content":"\""},{"type":"NFKD"},{"type":"StripAccents"},
		{"type":"Lowercase"},{"type":"NFC"}]},"added_tokens":[{"content":"[ab ab]","lstrip":true,"normalized":true}],"pre_tokenizer":{"type":"WhitespaceSplit"},` + unboundUnigram,
	"BPE with fused unknowns": `{"normalizer":{"type":"NFKC"},"pre_tokenizer":{"type":"WhitespaceSplit"},"model":{"type":"BPE","unk_token":"u","fuse_unk":true,
		"vocab":{"u":0,"a":1,"b":2,"ab":3,"1":4,"abab":5},"merges":["a b","ab ab"]}}`,
	"BPE without unknowns": `{"normalizer":{"type":"NFC"},"model":{"type":"BPE","vocab":{"a":1,"b":2,"ab":3,"1":4},"merges":["a b"]}}`,
	"word level":           `{"added_tokens":[{"content":"a b"}],"normalizer":{"type":"NFC"},"pre_tokenizer":{"type":"Whitespace"},"model":{"type":"WordLevel","unk_token":"u","vocab":{"u":0,"a":1}}}`,
	"word pieces":          `{"normalizer":{"type":"BertNormalizer"},"pre_tokenizer":{"type":"BertPreTokenizer"},"model":{"type":"WordPiece","unk_token":"u","vocab":{"u":0,"a":1,"##b":2}}}`,
}

const unboundUnigram = `"model":{"type":"Unigram","unk_id":0,"vocab":[["<u1>",0],["a",-1],["b",-2],["ab",-1.5],["▁",-2],["▁ab",-2.5],["A",-3],["1",-3],["中",-3],["文",-3],["中文",-2],["й",-3],["д",-3],["か",-2],["が",-3],["한",-3],["하",-3],["é",-3],["ה",-3],["u",-3],["<",-3],[">",-3],["abab",-2]]}}`

// TestLeastTokensIsALowerBound: no text has fewer tokens, even if the normalizer shortens it, parts of it are
// unknown, or it continues another text.
func TestLeastTokensIsALowerBound(t *testing.T) {
	texts := []string{
		strings.Repeat("\u212a", 500), strings.Repeat("\U0001D42E\u0308\u0304", 300), strings.Repeat("\u1112\u1161\u11ab", 300),
		strings.Repeat("\u03b1\u0313\u0300\u0345", 300), strings.Repeat(" ", 5000), strings.Repeat("\uff21", 900), prose, strings.Repeat("=", 3000),
		strings.Repeat("<u1>", 500), strings.Repeat("ab", 900), strings.Repeat("a ", 900), strings.Repeat("[ab ab]", 300), strings.Repeat("a\u0301", 500), strings.Repeat("a\x01\u0301", 500),
	}
	pieces := []string{"a", "b", "ab", "A", "1", "u", " ", "  ", "\t", "\n", "\r\n", "\u0301", "\u0308", "\x01", "\x7f", "\u00e9", "\u4e2d", "\U0001F600", "<u1>", "[ab ab]", "a b", "''", ".", "-", "\u200d", "\ufb01", "\u00a0", "中", "文", "中文", "й", "д", "か", "が", "\u3099", "\uff9e", "하", "한", "\u11ab", "\u0323", "ה", "\u0600", "\uff0d", "▁", "[UNK]", "[MASK]"}
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		var b strings.Builder
		few := pieces[:1+r.IntN(len(pieces))]
		for range 1 + r.IntN(80) {
			b.WriteString(few[r.IntN(len(few))])
			if r.IntN(2) == 0 {
				b.WriteString(pieces[r.IntN(len(pieces))])
			}
		}
		texts = append(texts, b.String())
	}
	check := func(t *testing.T, tok *Tokenizer) {
		for i, text := range texts {
			ids, err := tok.EncodeIDs(text, EncodeOptions{})
			if n := tok.LeastTokens(text); err == nil && n > len(ids) {
				t.Errorf("%.40q: at least %d tokens, and it has %d", text, n, len(ids))
			}
			before := texts[(i*7+1)%len(texts)]
			ids, err = tok.EncodeIDs(before+text, EncodeOptions{})
			if n := tok.LeastTokens(before) + tok.LeastTokens(text); err == nil && n > len(ids) {
				t.Errorf("%.40q, %.40q: at least %d tokens, and both have %d", before, text, n, len(ids))
			}
		}
	}
	everyTokenizer(t, check)
	for name, text := range unboundTokenizers {
		t.Run(name, func(t *testing.T) {
			tok, err := Parse([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			if tok.spread.bytes != 0 {
				t.Fatalf("%v has a bound by its bytes", fmt.Sprintf("%T", tok.model))
			}
			if n := tok.LeastTokens(strings.Repeat("ab ab ", 10_000)); n < 1000 {
				t.Errorf("60,000 bytes have at least %d tokens, want thousands", n)
			}
			check(t, tok)
		})
	}
}

// TestUnigramTextBeyondASCIIIsRefusedUnread: text of letters that are tokens, none of them ASCII, had
// no bound and was tokenized whatever its length.
func TestUnigramTextBeyondASCIIIsRefusedUnread(t *testing.T) {
	for _, name := range []string{"unigram, NFC", "unigram, as T5"} {
		tok, err := Parse([]byte(unboundTokenizers[name]))
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{"中文", "д", "ה", "한"} {
			var many *TooManyError
			text = strings.Repeat(text, 1<<20)
			size := allocated(func() { _, err = tok.EncodeIDs(text, EncodeOptions{MaxTokens: 4096}) })
			if !errors.As(err, &many) || many.AtLeast != tok.LeastTokens(text) || size > 1024 {
				t.Errorf("%s, %.6s: %v after %d bytes", name, text, err, size)
			}
		}
		// Letters without tokens are one unknown token, whatever their number.
		if ids, err := tok.EncodeIDs(strings.Repeat("ж", 1<<16), EncodeOptions{MaxTokens: 3}); err != nil {
			t.Errorf("%s: %d tokens, %v", name, len(ids), err)
		}
	}
}
