// Package inuse knows which values have a user, such as the engine that runs a dispatched model: there is one at a time,
// and it ends before the value is closed.
package inuse

import "sync"

// A User uses values until End has returned.
type User struct {
	Name string // for errors
	End  func() // may be called again
}

var users sync.Map // of values, each with its *User

// Claim makes u the user of value, unless it has one: then it returns that.
func Claim(value any, u *User) (other *User) {
	if other, taken := users.LoadOrStore(value, u); taken {
		return other.(*User)
	}
	return nil
}

// Release ends a claim of u. It does nothing if value has another user.
func Release(value any, u *User) { users.CompareAndDelete(value, u) }

// End ends the user of value, if it has one, and returns when it has ended.
func End(value any) {
	if u, ok := users.Load(value); ok {
		u.(*User).End()
	}
}
