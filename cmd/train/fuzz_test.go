package main

import (
	"strings"
	"testing"
)

// FuzzConfig: what is read is written so that it reads the same.
func FuzzConfig(f *testing.F) {
	f.Add("num_processes: 2\nmixed_precision: bf16\n")
	f.Add("{\"use_cpu\": true}")
	f.Add("unknown: 1")
	f.Add("null")
	f.Add("fsdp_config: {a: [1, {b: c}]}\ncommands: [x]\n")
	f.Fuzz(func(t *testing.T, content string) {
		c, err := parseConfig([]byte(content), "c.yaml")
		if err != nil {
			return
		}
		_ = c.supported() // either is right
		b, err := c.encode("c.yaml")
		if err != nil {
			t.Fatal(err)
		}
		again, err := parseConfig(b, "c.yaml")
		if err != nil || len(again) != len(c) {
			t.Fatalf("%q read again: %v, %v", b, again, err)
		}
	})
}

// FuzzLoRA: what is taken has a rank.
func FuzzLoRA(f *testing.F) {
	for _, s := range []string{"r=16,alpha=32", "r=4,rslora,targets=q_proj+v_proj,layers=0+1,dropout=0.1", "r=1,exclude=a,rslora=false", ",", "r=,"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c, err := parseLoRA(s)
		if err == nil && (c.R < 1 || c.Alpha < 0 || !strings.Contains(s, "r=")) {
			t.Errorf("%q is %+v", s, c)
		}
	})
}
