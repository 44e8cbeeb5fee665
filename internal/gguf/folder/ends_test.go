package folder

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/gguf"
	"github.com/heftai/heft/internal/tokenizer"
)

// fileOf returns a file of a folder with this metadata.
func fileOf(m gguf.Metadata, file func(*vocabulary) ([]byte, error)) ([]byte, error) {
	v, err := readVocabulary(m)
	if err != nil {
		return nil, err
	}
	return file(v)
}

// endsOf returns the tokens that end an answer of a file with these tokens and types.
func endsOf(t *testing.T, m gguf.Metadata) []int {
	t.Helper()
	text, err := fileOf(m, generationConfig)
	if err != nil {
		t.Fatal(err)
	}
	var c struct {
		EOS []int `json:"eos_token_id"`
	}
	if err := json.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	return c.EOS
}

func vocabularyOf(kind string, types []int64, tokens ...string) gguf.Metadata {
	m := gguf.Metadata{ggml + "model": kind, ggml + "tokens": tokens}
	if types != nil {
		m[ggml+"token_type"] = types
	}
	return m
}

// TestAnswersOfGPTOSSEndedWithTheirReasoning: <|end|> ends a message of Harmony, and another one follows it. It ends answers of
// other models.
func TestAnswersOfGPTOSSEndedWithTheirReasoning(t *testing.T) {
	for _, c := range []struct {
		name   string
		tokens []string
		want   []int
	}{
		{"gpt-oss", []string{"a", "<|end|>", "<|return|>", "<|call|>"}, []int{2, 3}},
		{"Solar Open", []string{"a", "<|end|>", "<|flush|>", "<|calls|>"}, []int{2, 3}},
		{"Phi", []string{"a", "<|end|>", "<|endoftext|>"}, []int{2, 1}},
		{"Gemma 4", []string{"a", "</s>", "<|tool_response>", "<turn|>"}, []int{2, 3}},
	} {
		m := vocabularyOf("gpt2", []int64{1, 3, 3, 3}[:len(c.tokens)], c.tokens...)
		m[ggml+"eos_token_id"] = uint64(2)
		if got := endsOf(t, m); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
	m := vocabularyOf("gpt2", []int64{1, 3, 3, 3}, "a", "<|end|>", "<|return|>", "<|call|>")
	m[ggml+"eot_token_id"] = uint64(1)
	if got := endsOf(t, m); !slices.Equal(got, []int{2, 3}) {
		t.Errorf("<|end|> as eot_token_id: got %v, want [2 3]", got)
	}
}

// TestEndTokensOfAnotherTypeDidNotEndAnswers: some files have them as normal or user-defined tokens, or have no types.
func TestEndTokensOfAnotherTypeDidNotEndAnswers(t *testing.T) {
	for _, types := range [][]int64{nil, {1, 1, 1, 1}, {1, tokenUserDefined, 1, 1}} {
		m := vocabularyOf("gpt2", types, "<|", "<|im_end|>", "</s>", "Ā")
		m[ggml+"pre"], m[ggml+"merges"] = "gpt-2", []string{}
		if got := endsOf(t, m); !slices.Equal(got, []int{1}) {
			t.Errorf("types %v: got %v, want [1]", types, got)
		}
		tok := tokenizerOf(t, m)
		if ids, err := tok.EncodeIDs("<|im_end|>", tokenizer.EncodeOptions{}); err != nil || !slices.Equal(ids, []int32{1}) {
			t.Errorf("types %v: <|im_end|> is %v (%v), want [1]", types, ids, err)
		}
	}
}

// TestSpecialTokensOfSentencePieceWereMissing: files that do not state them have the usual ones.
func TestSpecialTokensOfSentencePieceWereMissing(t *testing.T) {
	m := vocabularyOf("llama", []int64{2, 3, 3, 1}, "<unk>", "<s>", "</s>", "a")
	m[ggml+"scores"] = []float64{0, 0, 0, -1}
	if got := endsOf(t, m); !slices.Equal(got, []int{2}) {
		t.Errorf("ends %v, want [2]", got)
	}
	tok := tokenizerOf(t, m)
	if ids, err := tok.EncodeIDs("", tokenizer.EncodeOptions{AddSpecialTokens: true}); err != nil || !slices.Equal(ids, []int32{1}) {
		t.Errorf("an empty text is %v (%v), want [1]", ids, err)
	}
	m[ggml+"eos_token_id"], m[ggml+"bos_token_id"] = uint64(1<<32-1), uint64(1<<32-1)
	m[ggml+"token_type"] = []int64{2, 1, 1, 1}
	if got := endsOf(t, m); got != nil {
		t.Errorf("ends %v of a file that states none", got)
	}
}

// TestSuppressedTokensWereChosen: tokens that a file says must not be chosen, as they have no embedding, were.
func TestSuppressedTokensWereChosen(t *testing.T) {
	m := vocabularyOf("gpt2", nil, "a", "b", "c")
	m[ggml+"suppress_tokens"] = []int64{1, 2}
	text, err := fileOf(m, generationConfig)
	if err != nil || !strings.Contains(string(text), `"suppress_tokens":[1,2]`) {
		t.Errorf("got %s, %v", text, err)
	}
}
