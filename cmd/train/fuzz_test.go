package main

import "testing"

// FuzzConfig: a config that is read and written reads the same again.
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
