package folder

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"

	"github.com/heftai/heft/internal/gguf"
	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/internal/tokenizer"
)

// pairsMetadata is a byte-level tokenizer whose tokens are all characters and all pairs of them, so that ids show where
// texts are split.
func pairsMetadata(pre string) gguf.Metadata {
	var tokens, merges []string
	seldom := 256
	for b := range 256 {
		r := rune(b)
		if b < '!' || b > '~' && b < 0xa1 || b == 0xad {
			r, seldom = rune(seldom), seldom+1
		}
		tokens = append(tokens, string(r))
	}
	for _, a := range tokens[:256] {
		for _, b := range tokens[:256] {
			tokens, merges = append(tokens, a+b), append(merges, a+" "+b)
		}
	}
	return gguf.Metadata{ggml + "model": "gpt2", ggml + "pre": pre, ggml + "tokens": tokens, ggml + "merges": merges}
}

// TestPreTokenizersSplitAsTokenizers: with each name of the table, awkward texts have the ids of the tokenizers library. The
// fixture has their checksums (scripts/make-gguf-pretokenizers.py, which runs this test with HEFT_WRITE_TOKENIZERS to get
// the files that the library reads).
func TestPreTokenizersSplitAsTokenizers(t *testing.T) {
	write := os.Getenv("HEFT_WRITE_TOKENIZERS")
	var fixture struct {
		Texts []string
		Sums  map[string][]uint32
	}
	text, err := golden.Read("testdata/pretokenizers.json")
	if err == nil {
		err = json.Unmarshal(text, &fixture)
	}
	if err != nil && write == "" {
		t.Fatal(err)
	}
	made := map[string]*tokenizer.Tokenizer{}
	for name, pre := range preTokenizers {
		if pre.spaced { // TestSpacedTokenizer
			continue
		}
		key := fmt.Sprint(pre)
		if made[key] == nil {
			file, err := fileOf(pairsMetadata(name), tokenizerFile)
			if err != nil {
				t.Fatal(err)
			}
			if write != "" {
				if err := os.WriteFile(filepath.Join(write, name+".json"), file, 0o600); err != nil {
					t.Fatal(err)
				}
				continue
			}
			if made[key], err = tokenizer.Parse(file); err != nil {
				t.Fatal(err)
			}
		}
		if len(fixture.Sums[name]) != len(fixture.Texts) {
			t.Errorf("%s: got %d sums for %d texts: run the script again", name, len(fixture.Sums[name]), len(fixture.Texts))
			continue
		}
		for i, text := range fixture.Texts {
			ids, err := made[key].EncodeIDs(text, tokenizer.EncodeOptions{})
			if sum := crc32.ChecksumIEEE(fmt.Append(nil, ids)); err != nil || sum != fixture.Sums[name][i] {
				t.Errorf("%s: %q has ids %v (%v), which the library cuts in another way", name, text, ids, err)
				break
			}
		}
	}
}
