package tokenizer

import (
	"slices"
	"testing"
)

// TestUnicodeScripts: the words are those of the reference. The sign of bitcoin is younger than its scripts.
func TestUnicodeScripts(t *testing.T) {
	for text, want := range map[string][]string{
		"  ab 中ひー カ 12. é\u0301x": {"ab ", "中ひー カ ", "12. ", "é", "\u0301", "x"}, "   ": nil, "\na": {"\n", "a"}, "a\u20bfb": {"a\u20bfb"}, "ꙮЖγ": {"ꙮЖ", "γ"},
	} {
		var got []string
		if err := (scripts{}).cut(whole(text, false), func(p piece) error { got = append(got, p.s); return nil }); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: got %q, %v, want %q", text, got, err, want)
		}
	}
}

// TestCTC: repeated tokens are one, and the defaults are the reference's.
func TestCTC(t *testing.T) {
	for _, c := range []struct {
		json   string
		tokens []string
		want   string
	}{
		{`{"type":"CTC"}`, []string{"<pad>", "h", "h", "<pad>", "e", "l", "l", "<pad>", "l", "o", "|", "|", "w", "'", "s", " ", "."}, "hello w's ."},
		{`{"type":"CTC","cleanup":false}`, []string{"a", "a", "|", "<pad>b"}, "a|b"},
	} {
		dec, err := (&parser{}).decoder(rawPart(c.json), "decoder", 0)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, part := range dec.decode(c.tokens, newDecodeBudget(100)) {
			got += part
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q", c.json, got, c.want)
		}
	}
}

// TestAddedTokensThatNormalizationEmpties: such a token matches between all characters, and takes the space behind it.
func TestAddedTokensThatNormalizationEmpties(t *testing.T) {
	tok, err := Parse([]byte(`{"added_tokens":[{"content":"  ","rstrip":true,"normalized":true}],"normalizer":{"type":"Strip","strip_left":false,"strip_right":true},
		"model":{"type":"WordPiece","unk_token":"?","continuing_subword_prefix":"##","max_input_chars_per_word":100,"vocab":{"?":0,"a":1,"##b":2,"b":3}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string][]int32{"ab": {1, 3}, "a b": {1, 4, 3}, "ab  ": {1, 3}, "  ab": {4, 4, 1, 3}} {
		if ids, err := tok.EncodeIDs(text, EncodeOptions{}); err != nil || !slices.Equal(ids, want) {
			t.Errorf("%q: got %v, %v, want %v", text, ids, err, want)
		}
	}
}
