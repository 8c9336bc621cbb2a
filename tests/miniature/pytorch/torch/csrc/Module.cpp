// libtorch_python: what torch._C is made of
#include <Python.h>

#include <ATen/Functions.h>
#include <torch/csrc/cuda/Module.h>

#include <exception>

namespace {

bool read_numbers(PyObject* list, at::Numbers& numbers) {
    for (size_t i = 0; i < numbers.size; i++) {
        numbers.data[i] = static_cast<float>(PyFloat_AsDouble(PyList_GET_ITEM(list, i)));
    }
    return PyErr_Occurred() == nullptr;
}

PyObject* write_numbers(const at::Numbers& numbers) {
    PyObject* list = PyList_New(static_cast<Py_ssize_t>(numbers.size));
    for (size_t i = 0; list != nullptr && i < numbers.size; i++) {
        PyList_SET_ITEM(list, i, PyFloat_FromDouble(numbers.data[i]));
    }
    return list;
}

PyObject* relu_cpu(PyObject*, PyObject* argument) {
    if (!PyList_Check(argument)) return PyErr_Format(PyExc_TypeError, "a list of numbers is needed");
    at::Numbers x(PyList_GET_SIZE(argument));
    if (!read_numbers(argument, x)) return nullptr;
    try {
        at::relu_cpu(x);
        return write_numbers(x);
    } catch (const std::exception& error) {
        PyErr_SetString(PyExc_RuntimeError, error.what());
        return nullptr;
    }
}

PyObject* saxpy_hip(PyObject*, PyObject* arguments) {
    float a;
    PyObject *first, *second;
    if (!PyArg_ParseTuple(arguments, "fO!O!", &a, &PyList_Type, &first, &PyList_Type, &second)) return nullptr;
    at::Numbers x(PyList_GET_SIZE(first)), y(PyList_GET_SIZE(second));
    if (!read_numbers(first, x) || !read_numbers(second, y)) return nullptr;
    if (x.size != y.size) return PyErr_Format(PyExc_ValueError, "x and y differ in length");
    const int error = at::saxpy_cuda(a, x, y);
    PyObject* result = write_numbers(y);
    return result == nullptr ? nullptr : Py_BuildValue("iN", error, result);
}

PyObject* device_count(PyObject*, PyObject*) { return PyLong_FromLong(at::cuda::device_count()); }

PyObject* arch_flags(PyObject*, PyObject*) { return PyUnicode_FromString(PYTORCH_ROCM_ARCH); }

PyObject* show_config(PyObject*, PyObject*) { return PyUnicode_FromString("CXX_FLAGS=" CXX_FLAGS); }

PyObject* operators(PyObject*, PyObject*) {
    PyObject* list = PyList_New(0);
    for (const char* const* name = at::operators; list != nullptr && *name != nullptr; name++) {
        PyObject* text = PyUnicode_FromString(*name);
        if (text == nullptr || PyList_Append(list, text) != 0) Py_CLEAR(list);
        Py_XDECREF(text);
    }
    return list;
}

PyMethodDef methods[] = {
    {"_operators", operators, METH_NOARGS, "the names of all operators"},
    {"relu_cpu", relu_cpu, METH_O, "max(x, 0), on the host"},
    {"saxpy_hip", saxpy_hip, METH_VARARGS, "(HIP's error number, a * x + y), on the GPU"},
    {"_cuda_getDeviceCount", device_count, METH_NOARGS, "the number of GPUs"},
    {"_show_config", show_config, METH_NOARGS, "how torch was built"},
    {"_cuda_getArchFlags", arch_flags, METH_NOARGS, "the GPU targets of this build, joined by spaces"},
    {},
};

PyModuleDef module = {PyModuleDef_HEAD_INIT, "torch._C", nullptr, -1, methods};

}  // namespace

extern "C" __attribute__((visibility("default"))) PyObject* initModule() {
    PyObject* made = PyModule_Create(&module);
#ifdef _GLIBCXX_USE_CXX11_ABI
    if (made != nullptr) PyModule_AddObject(made, "_GLIBCXX_USE_CXX11_ABI", PyBool_FromLong(_GLIBCXX_USE_CXX11_ABI));
#endif
    return made;
}
