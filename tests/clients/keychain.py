"""Keeps the key of a sealed data directory in a real keychain: gnome-keyring on a session bus of its own.

Usage: dbus-run-session -- keychain.py BINARY
"""

import json
import os
import subprocess
import sys
import tempfile


def main(binary):
    checks = 0
    with tempfile.TemporaryDirectory() as directory:
        home = {**os.environ, "HOME": directory, "XDG_RUNTIME_DIR": directory, "XDG_DATA_HOME": f"{directory}/share"}
        keyring = subprocess.Popen(["gnome-keyring-daemon", "--foreground", "--unlock", "--components=secrets"], env=home,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            keyring.stdin.write(b"login")
            keyring.stdin.close()
            # It tells where it is when it is ready.
            keyring.stdout.readline()

            def waystone(*arguments, data="data", **variables):
                env = {**home, "WAYSTONE_DATA_DIR": f"{directory}/{data}", **variables}
                return subprocess.run([binary, "--json", *arguments], env=env, capture_output=True, text=True, timeout=120)

            def answer(*arguments, **variables):
                done = waystone(*arguments, **variables)
                assert done.returncode == 0, (arguments, done)
                return json.loads(done.stdout)

            with open(f"{directory}/context.json", "w") as file:
                file.write('{"goal": "kept in a keychain"}')
            save = ("checkpoint", "save", "s", f"{directory}/context.json")

            # A key is made for a directory that is to be sealed, and found again without a word.
            answer(*save, WAYSTONE_ENCRYPTION="enabled")
            assert answer("status")["encrypted"] is True
            assert answer("checkpoint", "show", "--latest", "s")["context"] == {"goal": "kept in a keychain"}
            checks += 1

            # Another directory has another key; one that is moved keeps its own.
            answer(*save, data="other", WAYSTONE_ENCRYPTION="enabled")
            keys = {answer("key", "export", data=data)["key"] for data in ("data", "other")}
            assert len(keys) == 2, keys
            os.rename(f"{directory}/data", f"{directory}/moved")
            assert answer("checkpoint", "show", "--latest", "s", data="moved")["context"] == {"goal": "kept in a keychain"}
            checks += 1

            # What was written down opens it without a keychain.
            answer("key", "export", "--output", f"{directory}/key", data="moved")
            nowhere = {"DBUS_SESSION_BUS_ADDRESS": "unix:path=/nonexistent"}
            refused = waystone("status", data="moved", **nowhere)
            assert refused.returncode != 0 and "no key" in refused.stderr, refused
            assert answer("status", data="moved", WAYSTONE_KEY_FILE=f"{directory}/key", **nowhere)["encrypted"] is True
            refused = waystone("status", data="new", WAYSTONE_ENCRYPTION="enabled", **nowhere)
            assert refused.returncode != 0 and "WAYSTONE_PASSPHRASE" in refused.stderr, refused
            assert not os.path.exists(f"{directory}/new/waystone.db")
            checks += 1

            # A key is changed within the keychain, and into it from a file.
            before = answer("key", "export", data="moved")["key"]
            answer("key", "rotate", "--keychain", data="moved")
            assert answer("key", "export", data="moved")["key"] != before
            assert answer("checkpoint", "show", "--latest", "s", data="moved")["context"] == {"goal": "kept in a keychain"}
            refused = waystone("status", data="moved", WAYSTONE_KEY_FILE=f"{directory}/key")
            assert refused.returncode != 0 and "another key" in refused.stderr, refused
            checks += 1

            # A plain directory is sealed with a key that is made there.
            answer(*save, data="plain")
            answer("key", "encrypt-store", "--yes", data="plain")
            assert answer("status", data="plain")["encrypted"] is True
            assert answer("checkpoint", "show", "--latest", "s", data="plain")["context"] == {"goal": "kept in a keychain"}
            checks += 1
        finally:
            keyring.terminate()
            keyring.wait(timeout=30)
    print(f"{checks} passed, 0 failed")


if __name__ == "__main__":
    main(sys.argv[1])
