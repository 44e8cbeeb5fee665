package modelfiles

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/heftai/heft/meta"
)

// TestVocabulariesOfOtherFormatsAreCopied: a trained model had no tokenizer where its only vocabulary
// is tiktoken.model or tekken.json.
func TestVocabulariesOfOtherFormatsAreCopied(t *testing.T) {
	for _, name := range []string{"tiktoken.model", "qwen.tiktoken", "tekken.json", "tokenizer.model", "vocab.json", "merges.txt"} {
		from, to := t.TempDir(), t.TempDir()
		for file, data := range map[string]string{"config.json": `{"model_type":"llama"}`, name: "tokens"} {
			if err := os.WriteFile(filepath.Join(from, file), []byte(data), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := CopyBeside(to, from, meta.Float32); err != nil {
			t.Fatal(err)
		}
		if data, err := os.ReadFile(filepath.Join(to, name)); err != nil || string(data) != "tokens" {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
}
