# In new namespaces: `ROOM PLACE... -- COMMAND` makes a file system in memory that shows the system's programs and the places,
# read only, but for those after a `!`, and begins the command there, without any right. It may begin with setpriv's options.
set -e
room=$1
shift
mount -t tmpfs -o size=1g,nr_inodes=100k,mode=755 sandbox "$room"
set -- /usr /bin /lib /lib32 /lib64 /nix/store /etc/alternatives /etc/fonts /etc/ld.so.cache "$@"
set -- /dev/null /dev/zero /dev/random /dev/urandom /sys/devices/system/cpu "$@"
while [ "$1" != -- ]; do
    if [ -d "$room${1#!}" ] && [ "$1" != "${1#!}" ]; then
        mount -t tmpfs -o size=1m,nr_inodes=1k,mode=755 sandbox "$room${1#!}"
    elif [ -e "$1" ] && [ ! -e "$room$1" ]; then
        mkdir -p "$room${1%/*}"
        if [ -L "$1" ]; then
            cp -P "$1" "$room$1"
        else
            if [ -d "$1" ]; then mkdir "$room$1"; else touch "$room$1"; fi
            mount --rbind "$1" "$room$1"
            case "$1" in /dev/* | /sys/*) ;; *) mount -o remount,bind,ro,nosuid,nodev "$room$1" ;; esac
        fi
    fi
    shift
done
shift
mkdir -p "$room/proc" "$room/tmp" "$room/dev/shm" "$room$room"
mount -t proc proc "$room/proc"
chmod 777 "$room/tmp" "$room/dev/shm" "$room$room"
exec unshare --root="$room" --wd="$room" setpriv --no-new-privs --pdeathsig=KILL --bounding-set=-all --inh-caps=-all "$@"
