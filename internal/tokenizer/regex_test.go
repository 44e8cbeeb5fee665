package tokenizer

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestRegexMatches(t *testing.T) {
	cases := []struct {
		pattern, text string
		want          []string
	}{
		{`a|ab`, "abab", []string{"a", "a"}},
		{`(?:ab|a)c?`, "abcac", []string{"abc", "ac"}},
		{`a*`, "baab", []string{"", "aa", ""}},
		{`a*?b`, "aab b", []string{"aab", "b"}},
		{`a++b|a`, "aab aac", []string{"aab", "a", "a"}},
		{`a?+a|b`, "ab", []string{"b"}},
		{`(?>a|ab)c|b`, "abc", []string{"b"}},
		{`\s+(?!\S)|\s+`, "a   b \u3000", []string{"  ", " ", " \u3000"}},
		{`(?i:'s|'LL)`, "'S 'll '\u017f", []string{"'S", "'ll", "'\u017f"}},
		{`(?i)k`, "kK\u212a", []string{"k", "K", "\u212a"}},
		{`a(?i)b|c`, "aBC", []string{"aB"}},
		{`(?-i:a)|(?i:b)`, "AaBb", []string{"a", "B", "b"}},
		{`^a|b$`, "a\nab\nb", []string{"a", "a", "b", "b"}},
		{`\Aa|b\z|b\Z`, "aab\n", []string{"a", "b"}},
		{`.`, "a\nb", []string{"a", "b"}},
		{`(?m:.)`, "a\nb", []string{"a", "\n", "b"}},
		{`\bb|(?<=a)c|(?<!a)d`, "b ac ad bd", []string{"b", "c", "b", "d"}},
		{`[^\r\n\p{L}]|[a-c&&[^b]]|[]x]`, "ab]1\n", []string{"a", "]", "1"}},
		{`[[:punct:][:digit:]-]+|[[:^ascii:]]`, "a-1!\u00e9", []string{"-1!", "\u00e9"}},
		{`\x41|\x{62}|\u0063|\t|\-|\h{2}`, "Abc\t-fF", []string{"A", "b", "c", "\t", "-", "fF"}},
		{`a{2}|b{,2}c|d{1,}|e{x}`, "aaabbcdde{x}", []string{"aa", "bbc", "dd", "e{x}"}},
		{`(?<name>a)(b)`, "ab", []string{"ab"}},
		{`\p{Letter}\pN\p{^L}\P{L}`, "a1--", []string{"a1--"}},
		{`\p{Han}+|\p{Script_Extensions}?`[:8], "\u4e2d\u56fdx", []string{"\u4e2d\u56fd"}},
		{`a|`, "ba", []string{"", "a"}},
		{`\R|.`, "\r\na\n\u2028\r\u0085", []string{"\r\n", "a", "\n", "\u2028", "\r", "\u0085"}},
		{`\R\n|a`, "\r\n\n\r\na", []string{"\r\n\n", "a"}},
		{`\w`, "\u00b2", []string{"\u00b2"}},
		{`[\w]`, "\u00b2", nil},
	}
	for _, c := range cases {
		re, err := compileRegex(c.pattern)
		if err != nil {
			t.Errorf("%s: %v", c.pattern, err)
			continue
		}
		var got []string
		if err := re.each(c.text, nil, func(start, end int) error {
			got = append(got, c.text[start:end])
			return nil
		}); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s in %q: %q (%v), want %q", c.pattern, c.text, got, err, c.want)
		}
	}
}

func TestRegexErrors(t *testing.T) {
	for pattern, want := range map[string]string{
		`(`:                      "unterminated group",
		`a)`:                     "an unmatched )",
		`[a`:                     "unterminated class",
		`[b-a]`:                  "a range whose end is below",
		`*`:                      "a quantifier with nothing before it",
		`a{3,2}`:                 "an interval whose end is below",
		`\`:                      "a backslash at the end",
		`\p{Nothing}`:            `no property is named "Nothing"`,
		`(a)\1`:                  "an escape that is not supported",
		`(?<=ab)c`:               "got a lookbehind of several characters",
		`(a*)*`:                  "a repeated group that may match nothing",
		`((a{999}){999}){999}`:   "too large",
		`(?z)`:                   "an option that is not supported",
		strings.Repeat("(", 100): "nested too deeply",
		strings.Repeat("[", 100): "nested too deeply",
		strings.Repeat("a", 1e5): "more than",
		`[[:nonsense:]]`:         "an unknown [:class:]",
		`\x{110000}`:             "a broken character number",
	} {
		_, err := compileRegex(pattern)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: %v, want %s", pattern, err, want)
		}
	}
}

// TestHostilePatterns: patterns that backtrack without end are errors, in time.
func TestHostilePatterns(t *testing.T) {
	text := strings.Repeat("a", 50_000)
	for _, pattern := range []string{`(?:a|a)+b`, `(?:a+)+b`, `a*a*a*b`, `(?:a?){50}a{50}b`, `(?=a*b)a`, `a*b`} {
		tok := build(t, `"pre_tokenizer":{"type":"Split","pattern":{"Regex":`+strconv.Quote(pattern)+`},"behavior":"Isolated"}`)
		start := time.Now()
		_, err := tok.EncodeIDs(text, EncodeOptions{})
		if took := time.Since(start); !errors.Is(err, ErrTooSlow) || took > time.Minute {
			t.Errorf("%s: %v after %v", pattern, err, took)
		}
	}
}

// TestHostileFiles: files that blow a text up, or look up without end.
func TestHostileFiles(t *testing.T) {
	double := strings.Repeat(`{"type":"Replace","pattern":{"String":"a"},"content":"aa"},`, 30)
	regex := strings.ReplaceAll(double, `"String"`, `"Regex"`)
	for name, c := range map[string]struct {
		members string
		want    error
	}{
		"doubling":           {`"normalizer":{"type":"Sequence","normalizers":[` + strings.TrimSuffix(double, ",") + `]}`, ErrTooLong},
		"doubling by regex":  {`"normalizer":{"type":"Sequence","normalizers":[` + strings.TrimSuffix(regex, ",") + `]}`, ErrTooLong},
		"a long added token": {`"added_tokens":[{"content":"` + strings.Repeat("a", 1<<13) + `b"}]`, ErrTooSlow},
	} {
		tok := build(t, c.members)
		if _, err := tok.EncodeIDs(strings.Repeat("a", 1<<14), EncodeOptions{}); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	decoder := `"decoder":{"type":"Sequence","decoders":[` + strings.TrimSuffix(double, ",") + `]}`
	if got := build(t, decoder).Decode([]int32{1}, false); len(got) > 2*decodeRoom {
		t.Errorf("a decoder made %d bytes of one token", len(got))
	}
}

func FuzzRegex(f *testing.F) {
	f.Add(`\s+(?!\S)|\s+`, "a  b")
	f.Add(`(?i:'s|[^\r\n\p{L}]?\p{L}+){1,3}?`, "it's")
	f.Fuzz(func(t *testing.T, pattern, text string) {
		re, err := compileRegex(pattern)
		if err != nil {
			return
		}
		text, at := valid(text), 0
		_ = re.each(text, nil, func(start, end int) error {
			if start < at || end < start || end > len(text) {
				t.Errorf("match %d:%d behind %d of %d", start, end, at, len(text))
			}
			at = end
			return nil
		})
	})
}
