package anthropic

import (
	"strconv"

	"callgate/inspect"
	"callgate/inspect/rawjson"
	"callgate/inspect/strictjson"
)

// cursor reads a long document in one pass: what is walked over member by
// member is not skipped over before. It stops for good at the first fault.
type cursor struct {
	b   []byte
	i   int
	err *inspect.Error
	// fresh says that no item of the object or array was met yet.
	fresh bool
}

func (c *cursor) fail(where, reason string) {
	if c.err == nil {
		c.err = &inspect.Error{Dialect: Name, Where: where, Reason: reason}
	}
}

func (c *cursor) broken() {
	c.fail("request", "the body is no JSON at byte "+strconv.Itoa(c.i)+"; the client has to send it again")
}

// enter steps into the object or array that starts here with the bracket.
func (c *cursor) enter(bracket byte) {
	c.i = rawjson.Space(c.b, c.i)
	if c.i >= len(c.b) || c.b[c.i] != bracket {
		c.broken()
		return
	}
	c.i++
	c.fresh = true
}

// next moves to the next item before the closing bracket, and behind the
// bracket when there is none.
func (c *cursor) next(bracket byte) bool {
	if c.err != nil {
		return false
	}
	c.i = rawjson.Space(c.b, c.i)
	switch {
	case c.i >= len(c.b):
		c.broken()
		return false
	case c.b[c.i] == bracket:
		c.i++
		c.fresh = false
		return false
	case c.fresh:
	case c.b[c.i] != ',':
		c.broken()
		return false
	default:
		c.i = rawjson.Space(c.b, c.i+1)
	}
	c.fresh = false
	return true
}

// key reads a member's key, as it is written between its quotes, and stops at
// the member's value.
func (c *cursor) key() []byte {
	end := rawjson.SkipString(c.b, c.i)
	if end < 0 {
		c.broken()
		return nil
	}
	key := c.b[c.i+1 : end-1]
	c.i = rawjson.Space(c.b, end)
	if c.i >= len(c.b) || c.b[c.i] != ':' {
		c.broken()
		return nil
	}
	c.i = rawjson.Space(c.b, c.i+1)
	return key
}

// at gives the byte that the value here starts with, 0 at the end.
func (c *cursor) at() byte {
	if c.i >= len(c.b) {
		return 0
	}
	return c.b[c.i]
}

// value skips the value here.
func (c *cursor) value() rawjson.Span {
	if c.err != nil {
		return rawjson.Span{}
	}
	end := rawjson.Skip(c.b, c.i)
	if end < 0 {
		c.broken()
		return rawjson.Span{}
	}
	s := rawjson.Span{From: c.i, To: end}
	c.i = end
	return s
}

// take reads the value of a member that must not be there twice.
func (c *cursor) take(where func() string, name string, s *rawjson.Span) {
	if s.There() {
		c.fail(where(), "the key "+strconv.Quote(name)+" stands twice, and readers differ over which one holds")
		return
	}
	*s = c.value()
}

// other reads a member that is not looked for, unless some reader takes its
// key for one of the known ones.
func (c *cursor) other(where func() string, key []byte, known map[string]string) {
	if !plainKey(key) && c.err == nil {
		text := string(strictjson.AppendString(nil, append(append([]byte{'"'}, key...), '"')))
		if exact, ok := known[strictjson.Fold(text)]; ok {
			c.fail(where(), "the key "+strconv.Quote(string(key))+" reads like "+strconv.Quote(exact)+" and is not written so")
			return
		}
	}
	c.value()
}

// plainKey reports whether a key reads like no other: the keys that are looked
// for are of these letters, too.
func plainKey(key []byte) bool {
	for _, c := range key {
		if (c < 'a' || c > 'z') && c != '_' && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}
