package tokenizer

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/internal/testenv"
)

// benchNames are pipelines of each kind; those that are not there are left out.
var benchNames = []string{"gpt-2", "llama-bpe", "qwen2", "llama-spm", "bert-bge", "tiny-llama3like", "tiny-spm-legacy", "tiny-unigram-bytefallback"}

// benchText is every case's text, one after the other, some hundred kilobytes of it.
func benchText(b *testing.B, name string) string {
	var file struct{ Cases []encodeCase }
	golden.JSON(b, golden.Path(b, "text/tokenizers", name, "cases.json"), &file)
	var all strings.Builder
	for all.Len() < 1<<18 && len(file.Cases) > 0 {
		for _, c := range file.Cases {
			all.WriteString(c.Text + "\n")
		}
	}
	return all.String()
}

func benchEach(b *testing.B, run func(b *testing.B, name string, data []byte)) {
	ran := false
	for _, name := range benchNames {
		data, err := golden.Read(golden.Path(b, "text/tokenizers", name, FileName))
		if err != nil {
			continue
		}
		if _, err := Parse(data); err != nil {
			continue
		}
		ran = true
		b.Run(name, func(b *testing.B) { run(b, name, data) })
	}
	testenv.Need(b, "tokenizers", ran, "the reference fixtures of "+filepath.Join("text", "tokenizers"))
}

func BenchmarkParse(b *testing.B) {
	benchEach(b, func(b *testing.B, _ string, data []byte) {
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			if _, err := Parse(data); err != nil {
				b.Fatal(err)
			}
		}
	})
}

const prose = "When the archive grows beyond what fits in memory, the reader asks for one page at a time; " +
	"nobody notices (most days) that 1,024 blocks were never loaded at all.\n\tif err != nil { return err }\n"

func BenchmarkEncodeIDs(b *testing.B) {
	benchEach(b, func(b *testing.B, name string, data []byte) {
		tok, _ := Parse(data)
		for kind, text := range map[string]string{"cases": benchText(b, name), "prose": strings.Repeat(prose, 1000)} {
			b.Run(kind, func(b *testing.B) {
				b.SetBytes(int64(len(text)))
				for b.Loop() {
					if _, err := tok.EncodeIDs(text, EncodeOptions{}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	})
}

func BenchmarkEncodeOffsets(b *testing.B) {
	benchEach(b, func(b *testing.B, name string, data []byte) {
		tok, _ := Parse(data)
		text := strings.Repeat(prose, 1000)
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			if _, err := tok.Encode(text, EncodeOptions{}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkStream(b *testing.B) {
	benchEach(b, func(b *testing.B, name string, data []byte) {
		tok, _ := Parse(data)
		ids, _ := tok.EncodeIDs(prose, EncodeOptions{})
		s := tok.NewStream(true)
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if _, _, err := s.Next(ids[i%len(ids)]); err != nil {
				b.Fatal(err)
			}
		}
	})
}
