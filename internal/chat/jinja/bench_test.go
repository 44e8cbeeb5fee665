package jinja

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// benchTemplates are the templates of the project's own fixtures.
func benchTemplates(b *testing.B) map[string]string {
	b.Helper()
	files, err := filepath.Glob("../../../testdata/golden/text/templates/files/*.jinja")
	if err != nil || len(files) == 0 {
		b.Fatal("no templates", err)
	}
	sources := map[string]string{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			b.Fatal(err)
		}
		sources[filepath.Base(file)] = string(data)
	}
	return sources
}

func BenchmarkParse(b *testing.B) {
	for name, source := range benchTemplates(b) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(source)))
			for b.Loop() {
				if _, err := Parse(source); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkRender renders a conversation of 20 messages with two tools.
func BenchmarkRender(b *testing.B) {
	talk := NewList(NewDict("role", "system", "content", "Be brief."))
	for range 10 {
		talk.Items = append(talk.Items,
			NewDict("role", "user", "content", "What is the answer to everything, and why?"),
			NewDict("role", "assistant", "content", "Forty-two.\n\nNobody knows why."))
	}
	tool := NewDict("type", "function", "function", NewDict("name", "f", "description", "Does it.",
		"parameters", NewDict("type", "object", "properties", NewDict("x", NewDict("type", "string")))))
	vars := NewDict("messages", talk, "tools", NewList(tool, tool), "documents", nil,
		"add_generation_prompt", true, "bos_token", "<s>", "eos_token", "</s>")
	now := time.Date(2025, 3, 14, 15, 9, 26, 0, time.UTC)
	for name, source := range benchTemplates(b) {
		template, err := Parse(source)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := template.Render(vars, now, Limits{}); err != nil {
			b.Logf("%s: %v", name, err)
			continue
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := template.Render(vars, now, Limits{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
