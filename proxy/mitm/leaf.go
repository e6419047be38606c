package mitm

import (
	"container/list"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

const (
	// LeafLife is how long a host's certificate is valid.
	LeafLife = 24 * time.Hour
	// renew is how long before its end a certificate is no longer given out: a
	// connection may be set up with it while the handshake is slow, and clocks
	// differ.
	renew = 8 * time.Hour
	// leafCache is how many hosts' certificates are kept.
	leafCache = 256
)

// Issuer gives certificates for single hosts and keeps them until they are to
// be renewed. It is safe for concurrent use.
type Issuer struct {
	ca    *CA
	allow func(host string) bool
	now   func() time.Time
	max   int

	mu     sync.Mutex // guards what is below
	byHost map[string]*list.Element
	used   list.List // of *leaf, those used last in front
}

type leaf struct {
	host string
	cert *tls.Certificate
	till time.Time
}

// NewIssuer returns the issuer of an authority with its key, for hosts that
// allow knows. Nothing is ever issued for another.
func NewIssuer(ca *CA, allow func(host string) bool) (*Issuer, error) {
	if ca == nil || ca.key == nil || allow == nil {
		return nil, errors.New("mitm: an issuer needs an authority with its key, and the list of hosts")
	}
	return &Issuer{ca: ca, allow: allow, now: time.Now, max: leafCache, byHost: make(map[string]*list.Element)}, nil
}

// Certificate gives the certificate of a host: a name in small letters, or an
// address.
func (i *Issuer) Certificate(host string) (*tls.Certificate, error) {
	if !i.allow(host) {
		return nil, fmt.Errorf("mitm: no certificate is issued for %q", host)
	}
	now := i.now()
	i.mu.Lock()
	defer i.mu.Unlock()
	if e := i.byHost[host]; e != nil {
		if l := e.Value.(*leaf); now.Before(l.till) {
			i.used.MoveToFront(e)
			return l.cert, nil
		}
		i.drop(e)
	}
	l, err := i.issue(host, now)
	if err != nil {
		return nil, err
	}
	for i.used.Len() >= i.max {
		i.drop(i.used.Back())
	}
	i.byHost[host] = i.used.PushFront(l)
	return l.cert, nil
}

func (i *Issuer) drop(e *list.Element) {
	i.used.Remove(e)
	delete(i.byHost, e.Value.(*leaf).host)
}

// issue makes a certificate with a key of its own.
func (i *Issuer) issue(host string, now time.Time) (*leaf, error) {
	name, addr, err := parse(host)
	if err != nil {
		return nil, err
	}
	if i.ca.Expired(now) {
		return nil, fmt.Errorf("mitm: the authority is not valid at this time; %s", remake)
	}
	if !i.ca.Covers(host) {
		return nil, fmt.Errorf("mitm: the authority was not made for %s; %s", host, remake)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("mitm: key: %w", err)
	}
	serial, err := serialNumber()
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{
		SerialNumber: serial,
		NotBefore:    latest(now.Add(-early), i.ca.cert.NotBefore), NotAfter: earliest(now.Add(LeafLife), i.ca.cert.NotAfter),
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if name != "" {
		t.DNSNames = []string{name}
	} else {
		t.IPAddresses = []net.IP{addr.AsSlice()}
	}
	if len(host) <= 64 { // what a common name may hold (RFC 5280, ub-common-name)
		t.Subject = pkix.Name{CommonName: host}
	} else {
		t.Subject = pkix.Name{Organization: []string{"callgate"}}
	}
	der, err := x509.CreateCertificate(rand.Reader, t, i.ca.cert, &key.PublicKey, i.ca.key)
	if err != nil {
		return nil, fmt.Errorf("mitm: certificate of %s: %w", host, err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("mitm: certificate of %s: %w", host, err)
	}
	till := t.NotAfter.Add(-renew)
	if !till.After(now) {
		till = t.NotAfter // the authority ends soon itself
	}
	return &leaf{host: host, till: till, cert: &tls.Certificate{
		Certificate: [][]byte{der}, PrivateKey: key, Leaf: parsed, // clients have the authority itself
	}}, nil
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
