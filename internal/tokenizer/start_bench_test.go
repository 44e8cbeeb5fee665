package tokenizer

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
)

// bigTokenizerJSON makes a tokenizer.json with n tokens of random letters, in the form of the largest
// published ones: BPE with bytes for unknown characters, indented JSON, two merges a token.
func bigTokenizerJSON(n int) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	var vocab, merges strings.Builder
	var tokens []string
	ids := map[string]bool{}
	add := func(token string) {
		if tokens = append(tokens, token); len(tokens) > 1 {
			vocab.WriteString(",\n")
		}
		fmt.Fprintf(&vocab, "      %s: %d", strconv.Quote(token), len(tokens)-1)
		ids[token] = true
	}
	add("<unk>")
	for b := range 256 {
		add(fmt.Sprintf("<0x%02X>", b))
	}
	for _, c := range "▁etaoinshrdlcumwfgypbvkxjqzéüабвг中文字" {
		add(string(c))
	}
	first := 257
	merge := func(left, right string) {
		if merges.Len() > 0 {
			merges.WriteString(",\n")
		}
		fmt.Fprintf(&merges, "      [\n        %s,\n        %s\n      ]", strconv.Quote(left), strconv.Quote(right))
	}
	for len(tokens) < n {
		left, right := tokens[first+r.IntN(len(tokens)-first)], tokens[first+r.IntN(len(tokens)-first)]
		if token := left + right; len(token) <= 14 && !ids[token] && !strings.Contains(right, spmSpace) {
			add(token)
			merge(left, right)
			merge(left, right)
		}
	}
	return []byte(`{"added_tokens":[{"id":0,"content":"<unk>","special":true}],"normalizer":` + spaceToMark +
		`,"pre_tokenizer":{"type":"Split","pattern":{"String":" "},"behavior":"MergedWithPrevious","invert":false},"decoder":{"type":"Sequence","decoders":[` + spaceDecoders +
		"]},\n  \"model\": {\n    \"type\": \"BPE\", \"unk_token\": \"<unk>\", \"fuse_unk\": true, \"byte_fallback\": true,\n    \"vocab\": {\n" +
		vocab.String() + "\n    },\n    \"merges\": [\n" + merges.String() + "\n    ]\n  }\n}\n")
}

// BenchmarkStart reads a tokenizer.json and encodes a first text: a generated one with 256k tokens, or the file
// that HEFT_BENCH_TOKENIZER names.
func BenchmarkStart(b *testing.B) {
	data, err := []byte(nil), error(nil)
	if path := os.Getenv("HEFT_BENCH_TOKENIZER"); path != "" {
		if data, err = os.ReadFile(path); err != nil {
			b.Fatal(err)
		}
	} else {
		data = bigTokenizerJSON(1 << 18)
	}
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		t, err := Parse(data)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := t.EncodeIDs(prose, EncodeOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}
