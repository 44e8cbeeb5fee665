package tokenizer

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/internal/testenv"
)

// boundTexts are texts that end early in different places.
func boundTexts() map[string]string {
	return map[string]string{
		"prose":      strings.Repeat(prose, 200),
		"one word":   strings.Repeat("abcdefg", 5000),
		"one letter": strings.Repeat("a", 40_000),
		"spaces":     strings.Repeat(" ", 40_000),
		"emoji":      strings.Repeat("\U0001F600\u200d", 4000),
	}
}

// TestMaxTokensChangesNoAnswer: whatever the pipeline, a text that has as many tokens as are
// allowed is encoded as it is, and one token more is an error that claims no more tokens
// than there are.
func TestMaxTokensChangesNoAnswer(t *testing.T) {
	for _, path := range golden.Glob(t, "text/tokenizers/*/"+FileName) {
		data, err := golden.Read(path)
		if err != nil {
			t.Fatal(err)
		}
		tok, err := Parse(data)
		if err != nil {
			continue
		}
		for name, text := range boundTexts() {
			want, err := tok.EncodeIDs(text, EncodeOptions{})
			if err != nil || len(want) < 2 {
				continue
			}
			if ids, err := tok.EncodeIDs(text, EncodeOptions{MaxTokens: len(want), Stop: t.Context().Err}); err != nil || len(ids) != len(want) {
				t.Errorf("%s, %s: %d tokens of %d, %v", path, name, len(ids), len(want), err)
			}
			for _, most := range []int{1, len(want) / 2, len(want) - 1} {
				var many *TooManyError
				_, err := tok.EncodeIDs(text, EncodeOptions{MaxTokens: most})
				if !errors.As(err, &many) || many.AtLeast <= most || many.AtLeast > len(want) || many.Max != most {
					t.Errorf("%s, %s: %d tokens, at most %d: %v", path, name, len(want), most, err)
				}
				if _, err := tok.Encode(text, EncodeOptions{MaxTokens: most}); !errors.As(err, &many) {
					t.Errorf("%s, %s with offsets: %v", path, name, err)
				}
			}
		}
	}
}

// TestALongWordIsCountedBeforeItIsMerged: merging a word of some megabytes takes seconds, and
// a hundred bytes of memory for each of its own.
func TestALongWordIsCountedBeforeItIsMerged(t *testing.T) {
	tok := bytesTokenizer(t)
	text := strings.Repeat("x", 8<<20)
	var many *TooManyError
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := tok.EncodeIDs(text, EncodeOptions{MaxTokens: 4096}); !errors.As(err, &many) {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	allocated := after.TotalAlloc - before.TotalAlloc
	if allocated > 1<<20 {
		t.Errorf("%d bytes were allocated", allocated)
	}
}

// TestEncodingStops: encoding ends when its tokens are no longer needed, wherever
// the work on it is.
func TestEncodingStops(t *testing.T) {
	tok := bytesTokenizer(t)
	for name, text := range map[string]string{"prose": strings.Repeat(prose, 100_000), "one word": strings.Repeat("ab", 8<<20)} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		_, err := tok.EncodeIDs(text, EncodeOptions{Stop: ctx.Err})
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func bytesTokenizer(t *testing.T) *Tokenizer {
	t.Helper()
	data, err := golden.Read(golden.Path(t, "text/tokenizers", "tiny-bytebpe-512", FileName))
	testenv.Need(t, "tokenizers", err == nil, "the fixtures of text/tokenizers")
	tok, err := Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}
