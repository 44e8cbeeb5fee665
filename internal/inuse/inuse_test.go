package inuse

import "testing"

func TestOneUserAtATime(t *testing.T) {
	value, ended := new(int), 0
	first, second := &User{Name: "first"}, &User{Name: "second", End: func() { ended++ }}
	if Claim(value, first) != nil || Claim(value, second) != first {
		t.Error("the first user is not the only one")
	}
	Release(value, second)
	if Claim(value, second) != first {
		t.Error("another user's release ended the claim")
	}
	Release(value, first)
	if Claim(value, second) != nil {
		t.Error("the value was not released")
	}
	End(value)
	End(new(int))
	if ended != 1 {
		t.Errorf("the user was ended %d times, want once", ended)
	}
}
