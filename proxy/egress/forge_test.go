package egress

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
)

// forger writes the records of a server once the handshake is over, those too
// that crypto/tls writes for nobody.
type forger struct {
	version uint16
	aead    cipher.AEAD
	iv      []byte
	secret  []byte // of TLS 1.3
	seq     uint64
	into    *wire
}

// The suites that a forger knows. That of TLS 1.3 cannot be asked for; it is
// taken by machines that have AES.
var forged = []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}

// forge takes the server's place at a connection. end makes the client's of what
// is below TLS.
func forge(t testing.TB, version uint16, here func(net.Conn) net.Conn) (f *forger, client *tls.Conn, in, out *wire) {
	t.Helper()
	in, out = newWire(), newWire()
	hello := &keeping{port: port{in: out, out: in}}
	var keys bytes.Buffer
	_, client = shake(t, version, here(port{in: in, out: out}), hello, func(c *tls.Config) {
		c.KeyLogWriter, c.SessionTicketsDisabled, c.CipherSuites = &keys, true, forged
	})
	f = &forger{version: version, into: in}
	random, secret := "", map[string][]byte{}
	for line := range strings.Lines(keys.String()) {
		words := strings.Fields(line)
		random = words[1]
		var err error
		if secret[words[0]], err = hex.DecodeString(words[2]); err != nil {
			t.Fatal(err)
		}
	}
	if version == tls.VersionTLS13 {
		if client.ConnectionState().CipherSuite != tls.TLS_AES_128_GCM_SHA256 {
			t.Skip("this machine has no AES")
		}
		f.keys(secret["SERVER_TRAFFIC_SECRET_0"])
		return f, client, in, out
	}
	seed, err := hex.DecodeString(random)
	if err != nil {
		t.Fatal(err)
	}
	// RFC 5246, section 6.3: the random of the server stands in its first record.
	block := prf(secret["CLIENT_RANDOM"], append(append([]byte("key expansion"), hello.first[11:43]...), seed...), 40)
	f.aead, f.iv, f.seq = gcm(block[16:32]), block[36:40], 1
	return f, client, in, out
}

// keeping keeps the first that is written.
type keeping struct {
	port
	first []byte
}

func (k *keeping) Write(b []byte) (int, error) {
	if k.first == nil {
		k.first = bytes.Clone(b)
	}
	return k.port.Write(b)
}

func gcm(key []byte) cipher.AEAD {
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic(err)
	}
	return aead
}

// prf is that of RFC 5246, section 5.
func prf(secret, seed []byte, n int) (out []byte) {
	sum := func(parts ...[]byte) []byte {
		h := hmac.New(sha256.New, secret)
		for _, p := range parts {
			h.Write(p)
		}
		return h.Sum(nil)
	}
	for a := sum(seed); len(out) < n; a = sum(a) {
		out = append(out, sum(a, seed)...)
	}
	return out[:n]
}

// keys begins with another secret (RFC 8446, section 7.3).
func (f *forger) keys(secret []byte) {
	f.secret, f.seq = secret, 0
	f.aead, f.iv = gcm(expand(secret, "key", 16)), expand(secret, "iv", 12)
}

func expand(secret []byte, label string, n int) []byte {
	label = "tls13 " + label
	out, err := hkdf.Expand(sha256.New, secret, string([]byte{byte(n >> 8), byte(n), byte(len(label))})+label+"\x00", n)
	if err != nil {
		panic(err)
	}
	return out
}

// The types of records.
const (
	ofCipher, ofAlert, ofHandshake, ofData = 20, 21, 22, 23
)

// record writes one record.
func (f *forger) record(kind byte, content []byte, padding int) {
	seq := binary.BigEndian.AppendUint64(nil, f.seq)
	f.seq++
	if f.version != tls.VersionTLS13 {
		head := []byte{kind, 3, 3, 0, 0}
		binary.BigEndian.PutUint16(head[3:], uint16(8+len(content)+f.aead.Overhead()))
		about := append(bytes.Clone(seq), kind, 3, 3, byte(len(content)>>8), byte(len(content)))
		f.into.put(f.aead.Seal(append(head, seq...), append(bytes.Clone(f.iv), seq...), content, about))
		return
	}
	content = append(append(bytes.Clone(content), kind), make([]byte, padding)...)
	head := []byte{ofData, 3, 3, 0, 0}
	binary.BigEndian.PutUint16(head[3:], uint16(len(content)+f.aead.Overhead()))
	nonce := bytes.Clone(f.iv)
	for i := range seq {
		nonce[4+i] ^= seq[i]
	}
	f.into.put(f.aead.Seal(bytes.Clone(head), nonce, content, head))
}

// update tells of new keys, and takes them.
func (f *forger) update(asked bool) {
	message := []byte{24, 0, 0, 1, 0}
	if asked {
		message[4] = 1
	}
	f.record(ofHandshake, message, 0)
	if f.version == tls.VersionTLS13 {
		f.keys(expand(f.secret, "traffic upd", 32))
	}
}

// ticket is a NewSessionTicket of TLS 1.3 with n bytes in it.
func ticket(n int) []byte {
	m := append([]byte{0, 0, 1, 0, 1, 2, 3, 4, 1, 9, byte(n >> 8), byte(n)}, make([]byte, n)...)
	m = append(m, 0, 0)
	return append([]byte{4, byte(len(m) >> 16), byte(len(m) >> 8), byte(len(m))}, m...)
}

// What a script of a server may hold.
var moves = []struct {
	name string
	do   func(f *forger, r *rand.Rand)
}{
	{"a little", func(f *forger, r *rand.Rand) { f.record(ofData, some(r, 1+r.IntN(200)), 0) }},
	{"some", func(f *forger, r *rand.Rand) { f.record(ofData, some(r, 1+r.IntN(5000)), r.IntN(50)) }},
	{"as much as a record holds", func(f *forger, r *rand.Rand) { f.record(ofData, some(r, 1<<14), 0) }},
	{"more than a record holds", func(f *forger, r *rand.Rand) { f.record(ofData, some(r, 1<<14+1), 0) }},
	{"nothing", func(f *forger, r *rand.Rand) { f.record(ofData, nil, r.IntN(50)) }},
	{"much of nothing", func(f *forger, r *rand.Rand) {
		for range 20 {
			f.record(ofData, nil, 0)
		}
	}},
	{"new keys", func(f *forger, r *rand.Rand) { f.update(false) }},
	{"new keys on both sides", func(f *forger, r *rand.Rand) { f.update(true) }},
	{"a ticket", func(f *forger, r *rand.Rand) { f.record(ofHandshake, ticket(1+r.IntN(500)), 0) }},
	{"a ticket in pieces", func(f *forger, r *rand.Rand) {
		for m := ticket(1 + r.IntN(500)); len(m) > 0; {
			n := 1 + r.IntN(len(m))
			f.record(ofHandshake, m[:n], 0)
			m = m[n:]
		}
	}},
	{"half a ticket, and words", func(f *forger, r *rand.Rand) {
		f.record(ofHandshake, ticket(100)[:50], 0)
		f.record(ofData, some(r, 20), 0)
	}},
	{"two tickets in one", func(f *forger, r *rand.Rand) { f.record(ofHandshake, append(ticket(10), ticket(20)...), 0) }},
	{"new keys, with a ticket behind", func(f *forger, r *rand.Rand) {
		f.record(ofHandshake, append([]byte{24, 0, 0, 1, 0}, ticket(10)...), 0)
	}},
	{"another handshake", func(f *forger, r *rand.Rand) { f.record(ofHandshake, make([]byte, 4), 0) }},
	{"a handshake message of no kind", func(f *forger, r *rand.Rand) { f.record(ofHandshake, []byte{99, 0, 0, 1, 0}, 0) }},
	{"an empty handshake record", func(f *forger, r *rand.Rand) { f.record(ofHandshake, nil, 0) }},
	{"a change of ciphers", func(f *forger, r *rand.Rand) { f.record(ofCipher, []byte{1}, 0) }},
	{"a change of ciphers in clear", func(f *forger, r *rand.Rand) { f.into.put([]byte{ofCipher, 3, 3, 0, 1, 1}) }},
	{"a warning", func(f *forger, r *rand.Rand) { f.record(ofAlert, []byte{1, 90}, 0) }},
	{"an end", func(f *forger, r *rand.Rand) { f.record(ofAlert, []byte{1, 0}, 0) }},
	{"a fatal alert", func(f *forger, r *rand.Rand) { f.record(ofAlert, []byte{2, 80}, 0) }},
	{"an alert in clear", func(f *forger, r *rand.Rand) { f.into.put([]byte{ofAlert, 3, 3, 0, 2, 2, 80}) }},
	{"a record of no kind", func(f *forger, r *rand.Rand) { f.record(77, some(r, 10), 0) }},
	{"a record again", func(f *forger, r *rand.Rand) {
		f.record(ofData, some(r, 10), 0)
		f.seq--
	}},
	{"half a record", func(f *forger, r *rand.Rand) { f.into.put([]byte{ofData, 3, 3, 1, 0, 'c', 'u', 't'}) }},
	{"a broken header", func(f *forger, r *rand.Rand) { f.into.put(some(r, 1+r.IntN(30))) }},
}

func some(r *rand.Rand, n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(r.Uint32())
	}
	return p
}

// heard is what a client has of a script: what was read between errors, the
// errors, and what it answered.
type heard struct {
	read   [][]byte
	errs   []string
	answer int
}

func hear(c net.Conn, r *rand.Rand, out *wire) (h heard) {
	h.read = [][]byte{nil}
	for len(h.errs) < 3 {
		p := make([]byte, 1+r.IntN(1+r.IntN(40000)))
		n, err := c.Read(p)
		last := len(h.errs)
		h.read[last] = append(h.read[last], p[:n]...)
		if err != nil {
			h.errs, h.read = append(h.errs, err.Error()), append(h.read, nil)
		} else if n == 0 {
			h.errs, h.read = append(h.errs, "nothing, and no error"), append(h.read, nil)
		}
	}
	h.answer = len(out.take())
	return h
}

// same plays a script to crypto/tls and to what is tested, and compares.
func same(t *testing.T, version uint16, seed uint64, script []byte) {
	t.Helper()
	var both [2]heard
	for i := range both {
		var under *ahead
		f, client, in, out := forge(t, version, func(c net.Conn) net.Conn {
			if i == 0 {
				return c
			}
			under = &ahead{Conn: c}
			return under
		})
		out.take()
		says := rand.New(rand.NewPCG(seed, 1))
		var names []string
		for _, b := range script {
			m := moves[int(b)%len(moves)]
			m.do(f, says)
			names = append(names, m.name)
		}
		in.end([]error{io.EOF, errReset}[seed%2])
		cuts := rand.New(rand.NewPCG(seed, 2+uint64(i)))
		size := 1 + cuts.IntN(1+cuts.IntN(50000))
		in.most = func() int { return 1 + cuts.IntN(size) }
		var c net.Conn = client
		if i == 1 {
			c = &records{Conn: client, under: under}
		}
		both[i] = hear(c, cuts, out)
		if i == 1 && under.buf != nil && len(under.have) == 0 {
			t.Errorf("%q: an empty buffer is kept", names)
		}
		if i == 0 {
			continue
		}
		if got, want := fmt.Sprintf("%q", both[1].errs), fmt.Sprintf("%q", both[0].errs); got != want {
			t.Fatalf("%q: it ends with %s, crypto/tls with %s", names, got, want)
		}
		for k := range both[0].read {
			if !bytes.Equal(both[0].read[k], both[1].read[k]) {
				t.Fatalf("%q: before error %d %d bytes were read, by crypto/tls %d", names, k+1, len(both[1].read[k]), len(both[0].read[k]))
			}
		}
		if both[0].answer != both[1].answer {
			t.Fatalf("%q: %d bytes were answered, by crypto/tls %d", names, both[1].answer, both[0].answer)
		}
	}
}

// Whatever a server writes, and whatever the network makes of it, what is read,
// told and answered is what crypto/tls by itself reads, tells and answers.
func TestRecordsAreReadAsByTLSAlone(t *testing.T) {
	r := random(t)
	for name, version := range versions {
		t.Run(name, func(t *testing.T) {
			for i, m := range moves {
				for range 4 {
					// Words before it and behind it.
					script := make([]byte, 3+r.IntN(8))
					script[1+r.IntN(len(script)-1)] = byte(i)
					same(t, version, r.Uint64(), script)
				}
				if t.Failed() {
					t.Fatal(m.name)
				}
			}
		})
	}
}

func FuzzRecordsAreReadAsByTLSAlone(f *testing.F) {
	for i := range moves {
		f.Add(true, uint64(i), []byte{0, 1, byte(i), 0, 0})
		f.Add(false, uint64(i), []byte{0, byte(i), 0})
	}
	f.Add(true, uint64(1), []byte{0, 7, 0, 6, 9, 0, 0, 7, 8, 1, 19, 0})
	f.Fuzz(func(t *testing.T, newest bool, seed uint64, script []byte) {
		version := uint16(tls.VersionTLS12)
		if newest {
			version = tls.VersionTLS13
		}
		same(t, version, seed, script[:min(len(script), 40)])
	})
}

// The forger's records are good ones: else all of it would prove no more than
// that bad ones are refused.
func TestRecordsWithNewKeysAndTicketsAreRead(t *testing.T) {
	for name, version := range versions {
		f, client, in, out := forge(t, version, func(c net.Conn) net.Conn { return c })
		out.take()
		f.record(ofData, []byte("one "), 0)
		if version == tls.VersionTLS13 {
			f.update(true)
			f.record(ofHandshake, ticket(100)[:50], 0)
			f.record(ofHandshake, ticket(100)[50:], 0)
			f.update(false)
		}
		f.record(ofData, []byte("two"), 7)
		f.record(ofAlert, []byte{1, 0}, 0)
		in.end(errReset)
		got, err := io.ReadAll(client)
		if string(got) != "one two" || err != nil {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if answered := len(out.take()) > 0; answered != (version == tls.VersionTLS13) {
			t.Errorf("%s: new keys were asked for, and there is an answer: %v", name, answered)
		}
		if _, err := client.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
